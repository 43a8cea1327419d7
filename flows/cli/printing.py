"""Tables and JSON on the console: what every reporting command prints."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]

_WIDE = 140
"""Columns where there is no terminal: logs and pipes wrap by themselves."""

# Without `emoji=False` Rich replaces a user's text such as `:x:` by a picture.
OUT = Console(emoji=False, width=None if sys.stdout.isatty() else _WIDE)
ERR = Console(stderr=True, emoji=False, width=None if sys.stderr.isatty() else _WIDE)


def print_json(document: object) -> None:
    """One JSON document on stdout, and nothing else."""
    sys.stdout.write(json.dumps(document, indent=1, default=str, allow_nan=False) + "\n")


def print_line(text: str) -> None:
    """One paragraph on stdout, as it is."""
    OUT.print(text, markup=False, highlight=False, soft_wrap=True)


def report_line(text: str) -> None:
    """One paragraph of progress on stderr, as it is."""
    ERR.print(text, markup=False, highlight=False, soft_wrap=True)


def print_rows(rows: Sequence[Row], columns: Sequence[str], *, title: str) -> None:
    """A table; a value that is missing is a dash."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    OUT.print(table)


def print_findings(
    findings: dict[str, dict[str, Any]],
    print_table: Callable[[dict[str, dict[str, Any]]], None],
    *,
    alone: bool,
    as_json: bool,
) -> None:
    """Print what was found in users' files, as a table or as JSON; for one file (`alone`) the JSON
    is what was found in it. Exits with 2 afterwards if a file has an `error` instead."""
    errors = [each["error"] for each in findings.values() if "error" in each]
    if as_json:
        print_json(next(iter(findings.values())) if alone else findings)
    else:
        print_table({name: each for name, each in findings.items() if "error" not in each})
    for error in errors:
        print_error(error)
    if errors:
        raise typer.Exit(2)


def print_ratios(rows: Sequence[Row], campaign: str) -> None:
    """A campaign's ratios, as `benchcore.store.reports.campaign.list_ratios` gives them."""
    columns = ("case", "pair", "speedup", "low", "high", "verdict", "counts", "fair")
    print_rows(rows, columns, title=f"{campaign}: speedup of the first over the second")
    for row in rows:
        if row["slow_side"]:
            who = f"{row['slow_side']} takes more than twice the other's time"
            print_line(f"slow: in {row['case']}, {who}")


def print_notes(notes: Sequence[str]) -> None:
    """Notes about versions, one line each, which a reader needs before the numbers."""
    for note in notes:
        print_line(f"note: {note}")


def print_failures(rows: Sequence[Row]) -> None:
    """The contenders that did not end well; nothing if all did."""
    if rows:
        columns = ("case", "name", "status", "cause", "stage", "reason")
        print_rows(rows, columns, title="Failed contenders")


def print_error(text: str) -> None:
    """One paragraph on stderr."""
    ERR.print(f"deadheat: {text}", style="red", markup=False, highlight=False, soft_wrap=True)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value)
    return str(value).replace("[", "\\[")
