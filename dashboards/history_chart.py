"""The ratio over time: one chart per case, with marks where a version or a condition changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import altair as alt
import pandas as pd

from benchcore.verdict.history.conditions import describe_changes, find_new_conditions
from dashboards.forest_chart import (
    SpeedupRange,
    arm_series,
    describe_speedup,
    encode_series,
    inline,
    layer_chart,
    span_speedups,
    speedup_axis,
)
from dashboards.formatting import FRAMEWORKS, case_label
from dashboards.frames import counting, keep, newest_pairs

_DAY_MS = 86_400_000
_HEIGHT = 170
_NAMES_HEIGHT = 30
"""Kept free above the points for the names of new versions."""


def history_rows(ratios: pd.DataFrame, fingerprints: set[str]) -> pd.DataFrame:
    """Newest JAX against newest torch, counting rows only, on these devices, oldest first."""
    pairs = newest_pairs(ratios)
    kept = keep(pairs, counting(pairs) & pairs["device_fingerprint"].isin(sorted(fingerprints)))
    return kept.sort_values("started_at", kind="stable").reset_index(drop=True)


def split_cases(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each case under its label, in the order of the labels."""
    labels = pd.Series([case_label(row) for row in rows.to_dict("records")], dtype=object)
    return {label: keep(rows, labels == label) for label in sorted(labels.unique())}


def find_version_changes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The version changes of one case, from rows sorted by time."""
    changes: list[dict[str, Any]] = []
    for framework, column in (("jax", "a_version"), ("torch", "b_version")):
        versions = rows[column].ffill()
        changed = versions.ne(versions.shift()) & versions.shift().notna()
        changes += [
            {
                "time": row["started_at"].isoformat(),
                "label": f"{FRAMEWORKS[framework]} {row[column]}",
                "framework": framework,
            }
            for row in keep(rows, changed).to_dict("records")
        ]
    return changes


def find_condition_changes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The nights of one case with a condition that is new to it, such as a driver, from rows sorted
    by time: `time`, `label`, and what changed in `words`."""
    nights = rows.drop_duplicates("duel_run").to_dict("records")
    found = find_new_conditions([row["conditions"] for row in nights])
    return [
        {
            "time": row["started_at"].isoformat(),
            "label": ", ".join(f"{each.name} {each.new}" for each in new),
            "words": f"{row['started_at']:%Y-%m-%d}: {describe_changes(new)}",
        }
        for row, new in zip(nights, found, strict=True)
        if new
    ]


def history_chart(rows: pd.DataFrame, *, description: str) -> alt.LayerChart:
    """Speedup of one case over time with error bars, one color and shape per arm.

    `rows` comes from `history_rows`, for one case. A new measuring method breaks the line.
    """
    points = [_point(row) for row in rows.to_dict("records")]
    span = span_speedups(rows[["log_ratio", "low", "high"]].to_numpy().ravel().tolist())
    x = alt.X("time:T", scale=_time_scale(points), axis=_time_axis(points), title=None)
    y = alt.Y("speedup:Q", scale=_ratio_scale(span), axis=speedup_axis(span), title=None)
    color, shape = encode_series()
    bounded = [point for point in points if point["low"] is not None and point["high"] is not None]
    layers = [
        alt.Chart(inline([{"speedup": 1}]))
        .mark_rule(strokeWidth=1.5, opacity=0.75, aria=False)
        .encode(y="speedup:Q"),
        *_version_layers([*find_version_changes(rows), *find_condition_changes(rows)], points, x),
        alt.Chart(inline(points))
        .mark_line(strokeWidth=1, opacity=0.45, aria=False)
        .encode(x=x, y=y, color=color, detail=["b_arm:N", "method:N"]),
        alt.Chart(inline(bounded))
        .mark_rule(strokeWidth=1.5, opacity=0.7, aria=False)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        alt.Chart(inline(points))
        .mark_point(filled=True, size=34, opacity=1)
        .encode(x=x, y=y, color=color, shape=shape, tooltip=_tooltip()),
        _arm_names(points, x, y),
    ]
    return layer_chart(layers, _HEIGHT, description)


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    series = arm_series(str(row["b_arm"]))
    return {
        "time": row["started_at"].isoformat(),
        "campaign": str(row["campaign"]),
        "b_arm": str(row["b_arm"]),
        "series": series,
        "arm": str(row["b_arm"]) if series == "other" else series,
        "jax": str(row["a_version"]),
        "torch": str(row["b_version"]),
        **describe_speedup(row),
        "verdict": str(row["verdict"]),
        "method": str(row["method"]),
    }


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("time:T", title="night", format="%Y-%m-%d %H:%M"),
        alt.Tooltip("value_label:N", title="JAX speedup"),
        alt.Tooltip("jax:N", title="JAX"),
        alt.Tooltip("torch:N", title="PyTorch"),
        alt.Tooltip("arm:N", title="PyTorch arm"),
        alt.Tooltip("verdict:N", title="verdict"),
        alt.Tooltip("campaign:N", title="campaign"),
    ]


def _version_layers(
    changes: list[dict[str, Any]], points: list[dict[str, Any]], x: alt.X
) -> list[alt.LayerChart | alt.Chart]:
    """A dashed line with the new version's name, on the side of the line where there is room."""
    if not changes:
        return []
    middle = sorted(point["time"] for point in points)[len(points) // 2]
    layers: list[alt.LayerChart | alt.Chart] = [
        alt.Chart(inline(changes)).mark_rule(strokeDash=[3, 3], opacity=0.6).encode(x=x)
    ]
    for place, change in enumerate(sorted(changes, key=lambda change: change["time"])):
        late = change["time"] > middle
        layers.append(
            alt.Chart(inline([change]))
            .mark_text(
                align="right" if late else "left",
                baseline="top",
                dx=-4 if late else 4,
                fontSize=10.5,
            )
            .encode(x=x, y=alt.YValue(13 * (place % 2)), text="label:N")
        )
    return layers


def _arm_names(points: list[dict[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    """The arm's name at its last point, instead of a legend."""
    last = {point["b_arm"]: point for point in points}
    return (
        alt.Chart(inline(list(last.values())))
        .mark_text(align="right", dx=-2, dy=-10, fontWeight=600, fontSize=11)
        .encode(x=x, y=y, text="arm:N")
    )


def _ratio_scale(span: SpeedupRange) -> alt.Scale:
    domain = [span.low, span.high]
    return alt.Scale(type="log", domain=domain, nice=False, range=[_HEIGHT, _NAMES_HEIGHT])


def _time_scale(points: list[dict[str, Any]]) -> alt.Scale:
    times = [_epoch_ms(point) for point in points]
    air = max(_DAY_MS / 2, 0.03 * (max(times) - min(times))) if times else 0
    domain = [min(times) - air, max(times) + air] if times else [0, _DAY_MS]
    return alt.Scale(type="utc", domain=domain, nice=False)


def _time_axis(points: list[dict[str, Any]]) -> alt.Axis:
    """Ticks at nights that were measured, a handful of them."""
    times = sorted({_epoch_ms(point) for point in points})
    ticks = times[:: max(1, math.ceil(len(times) / 5))]
    return alt.Axis(format="%d %b", values=ticks, labelOverlap=True, grid=False, title=None)


def _epoch_ms(point: dict[str, Any]) -> float:
    return datetime.fromisoformat(point["time"]).timestamp() * 1000
