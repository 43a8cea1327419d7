"""The table of training on image folders, formatted for the page and the console."""

from __future__ import annotations

import pandas as pd

from dashboards.formatting import (
    case_label,
    contender_label,
    format_energy,
    format_rate,
    format_seconds,
    format_share,
    one_line,
)


def list_epochs(epochs: pd.DataFrame) -> list[dict[str, str]]:
    """One row per contender and epoch, with medians over starts."""
    rows = epochs.sort_values(["workload", "case_name", "name", "epoch"], kind="stable")
    return [
        {
            "case": f"{case_label(row)}, {one_line(row['mode'], missing='')}",
            "dataset": one_line(row["dataset"], missing="not recorded"),
            "contender": contender_label(row["framework"], row["version"], row["arm"]),
            "epoch": str(int(row["epoch"]) + 1),
            "starts": _starts(row),
            "time": format_seconds(row["epoch_ns"] / 1e9),
            "rate": format_rate(row["images_per_s"]),
            "wait": format_share(row["wait_share"], 1.0),
            "loss": f"{row['loss']:.3f}",
            "accuracy": f"{100 * row['accuracy']:.1f} % of {int(row['num_val'])}",
            "validation": format_seconds(row["validation_ns"] / 1e9),
            "energy": format_energy(row["gross_mj"]),
        }
        for row in rows.to_dict("records")
    ]


def _starts(row: dict[str, float]) -> str:
    """`3 (1 disturbed)`."""
    disturbed = int(row["num_degraded"])
    return f"{int(row['num_starts'])}" + (f" ({disturbed} disturbed)" if disturbed else "")
