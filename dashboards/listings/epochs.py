"""The table of training on data sets, formatted for the page and the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchcore.names import format_percent
from dashboards.formatting import (
    case_label,
    format_energy,
    format_rate,
    format_seconds,
    format_share,
    name_contender,
    one_line,
)

_ORDER = ("workload", "case_name", "name", "epoch")


def list_epochs(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """One row per contender and epoch, with medians over starts, from the rows of
    `benchcore.store.frames.epochs`."""
    return [
        {
            **name_contender(row),
            "case": f"{case_label(row)}, {one_line(row['mode'], missing='')}",
            "dataset": one_line(row["dataset"], missing="not recorded"),
            "epoch": str(int(row["epoch"]) + 1),
            "starts": _starts(row),
            "time": format_seconds(row["epoch_ns"] / 1e9),
            "rate": format_rate(row["examples_per_s"]),
            "wait": format_share(row["wait_share"], 1.0),
            "loss": f"{row['loss']:.3f}",
            "accuracy": f"{format_percent(row['accuracy'], 1)} of {int(row['num_val'])}",
            "validation": format_seconds(row["validation_ns"] / 1e9),
            "energy": format_energy(row["gross_mj"]),
        }
        for row in sorted(rows, key=lambda row: [row[key] for key in _ORDER])
    ]


def _starts(row: Mapping[str, float]) -> str:
    """`3 (1 disturbed)`."""
    disturbed = int(row["num_degraded"])
    return f"{int(row['num_starts'])}" + (f" ({disturbed} disturbed)" if disturbed else "")
