"""Print the bottleneck of each contender's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.listings.bottlenecks import describe_bottleneck
from flows.cli.printing import print_line, print_rows

_COLUMNS = {
    "case": "case",
    "name": "contender",
    "bottleneck": "class",
    "intensity": "FLOP per byte (ridge)",
    "compute": "of compute ceiling",
    "bandwidth": "of bandwidth ceiling",
    "outside": "outside kernels",
}


def print_bottlenecks(rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `benchcore.store.frames.profiles.list_bottlenecks`."""
    described = [{"case": row["case"], **describe_bottleneck(row)} for row in rows]
    table = [{_COLUMNS[key]: row[key] for key in _COLUMNS} for row in described]
    if table:
        print_rows(table, [*_COLUMNS.values()], title="Why: the bottleneck of each step")
    for row in described:
        text = ". ".join(filter(None, (row["advice"], row["reason"])))
        print_line(f"{row['case']}, {row['name']}: {text}")
