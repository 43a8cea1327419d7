"""The blocks of a page as JSON: sections, sentences, tables, grids, facts and charts.

`assets/blocks.js` draws them. Every string ends up as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Block = dict[str, Any]
Cell = str | int | float | None | dict[str, Any]
Tone = Literal["answer", "aside", "alarm", "note", "plain"]


def section(title: str, blocks: Iterable[Block | None], *, id: str, aside: str = "") -> Block:
    """A titled part of a page; its `id` is the anchor of links. None is left out."""
    kept = [each for each in blocks if each is not None]
    return {"kind": "section", "id": id, "title": title, "aside": aside, "blocks": kept}


def text(*parts: str | Cell, tone: Tone = "plain") -> Block:
    """A sentence from strings and cells such as `link`."""
    return {"kind": "text", "tone": tone, "parts": list(parts)}


def link(text: object, href: str, title: str = "") -> dict[str, Any]:
    """A cell that opens an address relative to the dashboard's root."""
    return {"text": str(text), "href": href, **({"title": title} if title else {})}


def number(text: str, value: float | None, **more: Any) -> dict[str, Any]:
    """A cell that shows `text`, and sorts and downloads as `value`."""
    return {"text": text, "value": value, **more}


def badge(text: str, tone: Literal["good", "bad", "unknown", "same"], **more: Any) -> Cell:
    """A cell whose text is in a frame, coloured by its tone."""
    return {"text": text, "badge": tone, **more}


def column(
    key: str,
    name: str,
    *,
    help: str = "",
    align: Literal["", "number"] = "",
    lead: bool = False,
) -> Block:
    """A column of a table: the key of its cells, its heading, and a hover text. On a phone a
    `lead` column stands first, below the row's name."""
    leads = {"lead": True} if lead else {}
    return {"key": key, "name": name, "help": help, "align": align, **leads}


def table(
    name: str,
    caption: str,
    columns: Sequence[Block],
    rows: Sequence[Mapping[str, Cell]],
    *,
    empty: str = "",
) -> Block | None:
    """A table that sorts, filters and downloads as `name`.csv. Without rows, the sentence `empty`
    stands in its place, or nothing."""
    if not rows:
        return text(empty) if empty else None
    listed = [dict(row) for row in rows]
    return {
        "kind": "table",
        "name": name,
        "caption": caption,
        "columns": list(columns),
        "rows": listed,
    }


def grid(
    name: str,
    caption: str,
    columns: Sequence[Cell],
    rows: Sequence[tuple[Cell, Sequence[Cell]]],
    *,
    corner: str = "",
) -> Block:
    """A heat map as a table. A cell's `level`, -4 to 4, is its colour; None is empty."""
    listed = [{"head": head, "cells": list(cells)} for head, cells in rows]
    return {
        "kind": "grid",
        "name": name,
        "caption": caption,
        "corner": corner,
        "columns": list(columns),
        "rows": listed,
    }


def facts(pairs: Iterable[tuple[str, Cell]], *, ids: Sequence[str] = ()) -> Block:
    """Terms and their values; `ids` are the anchors of the terms."""
    anchors = {"ids": list(ids)} if ids else {}
    return {"kind": "facts", "pairs": [list(pair) for pair in pairs], **anchors}


def chart(name: str, description: str, **datasets: Sequence[Mapping[str, Any]]) -> Block:
    """A chart of `charts.py` with its named datasets; the description is its accessible name, and
    stands above it."""
    filled = {key: [dict(row) for row in rows] for key, rows in datasets.items()}
    named = {"spec": name, "description": description, "caption": description}
    return {"kind": "chart", **named, "datasets": filled}


def details(summary: str, blocks: Iterable[Block | None], *, id: str = "") -> Block:
    """Blocks behind a summary that opens them, as does a link to its `id`."""
    kept = [each for each in blocks if each is not None]
    return {"kind": "details", "id": id, "summary": summary, "blocks": kept}


def code(text: str) -> Block:
    """Text as it is, such as a traceback."""
    return {"kind": "code", "text": text}


def page(title: str, blocks: Iterable[Block | None], *, lead: str = "") -> Block:
    """The content of a whole page: what `data/pages/NAME.js` holds."""
    return {"title": title, "lead": lead, "blocks": [each for each in blocks if each is not None]}
