"""Print the bottleneck of each contender's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.bottlenecks import describe_reason, format_intensity
from dashboards.formatting import format_share
from flows.cli.printing import OUT, print_rows

_COLUMNS = (
    *("case", "contender", "class", "FLOP a byte (ridge)"),
    *("of compute ceiling", "of bandwidth ceiling", "outside kernels"),
)


def print_bottlenecks(rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `benchcore.store.frames.profiles.list_bottlenecks`."""
    table = [
        {
            "case": row["case"],
            "contender": row["name"],
            "class": row["bottleneck"],
            "FLOP a byte (ridge)": format_intensity(row),
            "of compute ceiling": format_share(row["compute_share"], 1.0),
            "of bandwidth ceiling": format_share(row["bandwidth_share"], 1.0),
            "outside kernels": format_share(row["host_share"], 1.0),
        }
        for row in rows
    ]
    if table:
        print_rows(table, _COLUMNS, title="Why: the bottleneck of each step")
    for row in rows:
        said = ". ".join(filter(None, (row["advice"], describe_reason(row))))
        OUT.print(f"{row['case']}, {row['name']}: {said}", markup=False, soft_wrap=True)
