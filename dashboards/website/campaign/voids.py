"""Why pairs do not count: causes in words, counted, and each pair with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.names import name_case_in_words
from dashboards.formatting import is_missing, one_line, side_label
from dashboards.frames import does_count
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.gather import Campaign

_LONGEST = 240
MOST_PAIRS = 20
"""Pairs that a table shows at once; more are folded."""


def shorten(reason: object) -> str:
    """The first line of a reason, at most 240 characters."""
    line = one_line(reason, missing="no reason recorded").strip().splitlines()
    text = line[0] if line else "no reason recorded"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def find_cause(row: Mapping[str, Any], statuses: Mapping[tuple[str, str], str]) -> str:
    """The cause of a void pair in a few words: a failed contender, settings, or a check."""
    for side in ("a", "b"):
        status = statuses.get((row["duel_run"], row[side]), "ok")
        if status != "ok":
            return f"contender failed: {status}"
    if row["violations"]:
        return "the two sides had different settings"
    if is_missing(row["log_ratio"]) and not row["reason"]:
        return "not measured"
    return str(row["reason"]).partition(":")[0].strip()[:80] or "no reason recorded"


def count_causes(campaign: Campaign) -> Counter[str]:
    """How many pairs do not count, by cause."""
    return Counter(cause for _, cause in _list_voids(campaign))


def _list_voids(campaign: Campaign) -> list[tuple[dict[str, Any], str]]:
    rows = campaign.rows("contenders")
    statuses = {(row["duel_run"], row["name"]): row["status"] for row in rows}
    void = [row for row in campaign.rows("ratios") if not does_count(row)]
    return [(row, find_cause(row, statuses)) for row in void]


def list_section(campaign: Campaign) -> Block | None:
    """The pairs that do not count with their reasons; None if all count."""
    found = _list_voids(campaign)
    if not found:
        return None
    rows = [
        {
            "case": blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
            "pair": f"{side_label(row, 'a')} against {side_label(row, 'b')}",
            "cause": cause,
            "reason": shorten(row["reason"]),
        }
        for row, cause in found
    ]
    columns = (
        column("case", "Case"),
        column("pair", "Pair"),
        column("cause", "Cause", lead=True),
        column("reason", "Reason"),
    )
    caption = "Measured, but not counted. The duel shows its times and failed checks."
    listed = [blocks.table("voids", caption, columns, rows)]
    if len(found) > MOST_PAIRS:
        summary = f"{len(found)} pairs, each with its reason"
        listed = [_cause_table(found), blocks.details(summary, listed)]
    return blocks.section("What does not count, and why?", listed, id="voids")


def _cause_table(found: Sequence[tuple[Mapping[str, Any], str]]) -> Block | None:
    count = Counter((name_case_in_words(row), cause) for row, cause in found)
    rows = [
        {"case": case, "cause": cause, "pairs": pairs}
        for (case, cause), pairs in count.most_common()
    ]
    columns = (
        column("case", "Case"),
        column("cause", "Cause", lead=True),
        column("pairs", "Pairs", align="number", lead=True),
    )
    caption = "Measured, but not counted, by cause."
    return blocks.table("causes", caption, columns, rows)
