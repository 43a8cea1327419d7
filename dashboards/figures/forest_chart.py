"""The forest plot: speedups with their intervals on a log axis, grouped by case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from benchcore.names import arm_label
from dashboards.formatting import (
    case_label,
    format_speedup,
    is_missing,
    one_line,
    side_label,
    to_plotted_ratio,
)

ARM_DOMAIN = ("compiled", "eager", "other")
# Mid-tones of the Okabe-Ito palette: safe for color-blind readers, readable on white and black.
COLORS = ("#2f80c3", "#d5761a", "#8a8f98")
_SHAPES = ("circle", "triangle-up", "square")
_ROW_STEP = 42
_LABEL_OFFSET, _MARK_OFFSET = -9, 7
_VALUE_WIDTH = 150
"""Pixels of a ratio with its interval, which a label beside it may not cover."""
_WIDE_TICKS = (0.001, 0.01, 0.1, 1, 10, 100, 1000)
_ROUND_TICKS = (0.15, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8)
_OCTAVES = (0.03125, 0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
_FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2)
_TICKS_BY_SPAN = ((2.2, _FINE_TICKS), (10, _ROUND_TICKS), (300, _OCTAVES))
TICK_TEXT = "format(datum.value, '~r') + 'x'"


_COLUMNS = (
    *("group", "label", "series", "case", "a", "b", "value_label", "speedup", "low", "high"),
    *("starts", "num_starts", "verdict"),
)


@dataclass(frozen=True)
class Directions:
    """The labels of the two sides of the 1x line."""

    left: str
    right: str


FRAMEWORK_DIRECTIONS = Directions("\u2190 PyTorch faster", "JAX faster \u2192")
PAIR_DIRECTIONS = Directions("\u2190 second faster", "first faster \u2192")


@dataclass(frozen=True)
class SpeedupRange:
    """Domain and ticks of a log axis that always shows 1x."""

    low: float
    high: float
    ticks: tuple[float, ...]


def span_speedups(log_values: Iterable[float]) -> SpeedupRange:
    """The range of all finite values and 1x, with a margin; ticks at round speedups."""
    finite = [value for value in log_values if not is_missing(value)]
    low, high = min([*finite, math.log(0.87)]), max([*finite, math.log(1.15)])
    air = 0.06 * (high - low)
    left, right = math.exp(low - air), math.exp(high + air)
    choices = next((ticks for limit, ticks in _TICKS_BY_SPAN if right / left < limit), _WIDE_TICKS)
    ticks = tuple(tick for tick in choices if left <= tick <= right)
    return SpeedupRange(float(f"{left:.6g}"), float(f"{right:.6g}"), ticks)


def arm_series(arm: str) -> str:
    """The series of an arm, which selects its color and shape."""
    if arm.startswith("torch-compile"):
        return "compiled"
    label = arm_label(arm)
    return label if label in ARM_DOMAIN else "other"


def pair_rows(pairs: pd.DataFrame) -> pd.DataFrame:
    """Rows of the forest of any pairs, labelled with the contenders' names."""
    return _sorted_rows(
        [
            _forest_row(pair, case_label(pair), f"{pair['a']} / {pair['b']}", str(pair["b_arm"]))
            for pair in pairs.to_dict("records")
        ]
    )


def _forest_row(pair: Mapping[str, Any], group: str, label: str, arm: str) -> dict[str, object]:
    starts = pair["start_log_ratios"]
    return {
        "group": group,
        "label": label,
        "series": arm_series(arm),
        "case": case_label(pair),
        "a": side_label(pair, "a"),
        "b": side_label(pair, "b"),
        **describe_speedup(pair),
        "starts": []
        if starts is None or is_missing(starts)
        else [to_plotted_ratio(log) for log in starts],
        "num_starts": pair["num_starts"],
        "verdict": one_line(pair["verdict"], missing="unknown"),
    }


def describe_speedup(pair: Mapping[str, Any]) -> dict[str, object]:
    """A ratio as text, and as the places of its point and interval."""
    logs = (pair["log_ratio"], pair["low"], pair["high"])
    places = zip(("speedup", "low", "high"), map(to_plotted_ratio, logs), strict=True)
    return {"value_label": format_speedup(*logs), **dict(places)}


def _sorted_rows(rows: list[dict[str, object]]) -> pd.DataFrame:
    def key(row: dict[str, object]) -> tuple[str, int, str]:
        return str(row["group"]), ARM_DOMAIN.index(str(row["series"])), str(row["label"])

    return pd.DataFrame(sorted(rows, key=key), columns=list(_COLUMNS), dtype=object)


def forest_chart(rows: pd.DataFrame, *, directions: Directions, description: str) -> alt.LayerChart:
    """Points, intervals and single starts: one line per pair, one heading per group.

    Every line has its own labels, so it is readable without color or shape.
    """
    lines, order = _lay_out(rows)
    logs = [
        math.log(value)
        for line in lines
        for value in (line["speedup"], line["low"], line["high"], *line["starts"])
        if value is not None
    ]
    span = span_speedups(logs)
    y = alt.Y("row:N", sort=order, axis=None, scale=alt.Scale(domain=order))
    x = alt.X("speedup:Q", scale=speedup_scale(span), axis=speedup_axis(span), title=None)
    layers = [
        _one_line_mark(),
        *_labels(order, lines, y, directions),
        *_marks(lines, y, x),
    ]
    return layer_chart(layers, _ROW_STEP * len(order), description)


def layer_chart(layers: list[Any], height: int, description: str) -> alt.LayerChart:
    """A chart as wide as its place in the page."""
    return alt.LayerChart(
        layer=layers,
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        description=description,
    )


def encode_series() -> tuple[alt.Color, alt.Shape]:
    """A color and a shape per kind of arm, without a legend."""
    domain = list(ARM_DOMAIN)
    return (
        alt.Color("series:N", scale=alt.Scale(domain=domain, range=list(COLORS)), legend=None),
        alt.Shape("series:N", scale=alt.Scale(domain=domain, range=list(_SHAPES)), legend=None),
    )


def speedup_scale(span: SpeedupRange) -> alt.Scale:
    return alt.Scale(type="log", domain=[span.low, span.high], nice=False)


def speedup_axis(span: SpeedupRange) -> alt.Axis:
    return alt.Axis(
        values=list(span.ticks), labelExpr=TICK_TEXT, grid=True, labelOverlap=True, title=None
    )


def _lay_out(rows: pd.DataFrame) -> tuple[list[dict[str, Any]], list[str]]:
    """Place the lines: a heading per group, then its pairs."""
    lines: list[dict[str, Any]] = []
    order = [" directions"]
    for record in rows.to_dict("records"):
        heading = f"{record['group']}"
        if heading not in order:
            order.append(heading)
        place = f"{heading} / {len(order)}"
        order.append(place)
        lines.append({str(key): value for key, value in record.items()} | {"row": place})
    return lines, order


def inline(records: list[dict[str, Any]]) -> alt.InlineData:
    """Data that is in the specification itself."""
    return alt.InlineData(values=records)


def _one_line_mark() -> alt.Chart:
    return (
        alt.Chart(inline([{"speedup": 1}]))
        .mark_rule(strokeWidth=1.5, opacity=0.75, aria=False)
        .encode(x="speedup:Q")
    )


def _labels(
    order: list[str], lines: list[dict[str, Any]], y: alt.Y, directions: Directions
) -> list[alt.Chart]:
    places = {line["row"] for line in lines}
    headings = inline([{"row": row, "text": row} for row in order[1:] if row not in places])
    top = inline([{"row": order[0], "left": directions.left, "right": directions.right}])
    pairs = inline(lines)
    left, right = alt.XValue(0), alt.XValue("width")
    return [
        left_text(top).encode(y=y, x=left, text="left:N"),
        right_text(top).encode(y=y, x=right, text="right:N"),
        alt.Chart(headings)
        .mark_text(align="left", baseline="middle", fontWeight=600, fontSize=13, yOffset=3)
        .encode(y=y, x=left, text="text:N"),
        left_text(pairs, _LABEL_OFFSET, limit=alt.ExprRef(f"width - {_VALUE_WIDTH}")).encode(
            y=y, x=left, text="label:N"
        ),
        right_text(pairs, _LABEL_OFFSET).encode(y=y, x=right, text="value_label:N"),
    ]


def left_text(values: alt.InlineData, offset: int = 0, **style: Any) -> alt.Chart:
    """Text that begins at the chart's left side, `offset` pixels below the middle of its row."""
    return alt.Chart(values).mark_text(align="left", baseline="middle", yOffset=offset, **style)


def right_text(values: alt.InlineData, offset: int = 0) -> alt.Chart:
    """Text that ends at the chart's right side."""
    return alt.Chart(values).mark_text(align="right", baseline="middle", yOffset=offset)


def _marks(lines: list[dict[str, Any]], y: alt.Y, x: alt.X) -> list[alt.Chart]:
    color, shape = encode_series()
    tooltip = [
        alt.Tooltip("case:N", title="case"),
        alt.Tooltip("a:N", title="this"),
        alt.Tooltip("b:N", title="against"),
        alt.Tooltip("value_label:N", title="speedup"),
        alt.Tooltip("verdict:N", title="verdict"),
        alt.Tooltip("num_starts:N", title="starts"),
    ]
    starts = [
        {"row": line["row"], "series": line["series"], "speedup": value}
        for line in lines
        for value in line["starts"]
    ]
    bounded = [line for line in lines if line["low"] is not None and line["high"] is not None]
    return [
        alt.Chart(inline(lines))
        .mark_rule(strokeWidth=1, opacity=0.25, yOffset=_MARK_OFFSET, aria=False)
        .encode(y=y, x=alt.XValue(0), x2=alt.X2Value("width")),
        alt.Chart(inline(starts))
        .mark_point(
            shape="stroke", angle=90, size=50, opacity=0.5, yOffset=_MARK_OFFSET, aria=False
        )
        .encode(y=y, x=x, color=color),
        alt.Chart(inline(bounded))
        .mark_rule(strokeWidth=2.5, yOffset=_MARK_OFFSET, aria=False)
        .encode(y=y, x=alt.X("low:Q"), x2="high:Q", color=color),
        alt.Chart(inline([line for line in lines if line["speedup"] is not None]))
        .mark_point(filled=True, size=70, opacity=1, yOffset=_MARK_OFFSET)
        .encode(y=y, x=x, color=color, shape=shape, tooltip=tooltip),
    ]
