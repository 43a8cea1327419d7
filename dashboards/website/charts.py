"""The charts of the dashboard: Vega-Lite specifications without data, which pages fill by name.

A chart's datasets are its arguments; `blocks.chart` names them. `charts.json` holds them for
`specifications.py`, as Altair takes half a second. To refresh it:
`python -m dashboards.website.charts dashboards/website/charts.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

from dashboards.figures.forest_chart import COLORS, TICK_TEXT

FRAMEWORK_COLORS = dict(zip(("JAX", "PyTorch", "Python"), COLORS, strict=True))
# None is a framework's.
_STAGE_COLORS = (
    *("#6b7280", "#a3a9b3", "#8b7fb0", "#b3a6d9", "#5f4b8b", "#7a9a7e", "#b8a06a", "#a87f7f"),
)
_SHAPES = ("circle", "triangle-up", "square", "diamond", "cross", "triangle-down")
_ALARM = "#c2410c"
_WIDTH: Any = "container"
_ROWS = alt.Axis(labelLimit=260, ticks=False, domain=False)
_APART: dict[str, Any] = {"labelOverlap": "greedy", "labelSeparation": 6}
"""Labels of an axis that never touch, however narrow the page is."""
_QUANTILE = ["contender:N", "quantile:Q", "ms:Q"]
_HISTORY_HEIGHT, _OVERVIEW_HEIGHT = 290, 42
_NO_NIGHT = "No night was measured here."
_LABELS_HEIGHT = 38
"""Height of the rows above the values, for labels of versions and conditions."""
_MARKS_HEIGHT = 16
"""Height of the row below the values, for labels of suspicions and events."""
_NIGHT = "timeFormat(datum.value, datum.index && month(datum.value) ? '%d %b' : '%d %b %Y')"
"""A year stands at the first label, and in January."""


def _named(name: str) -> alt.NamedData:
    return alt.NamedData(name)


def _framework_color() -> alt.Color:
    scale = alt.Scale(
        domain=list(FRAMEWORK_COLORS), range=[str(each) for each in FRAMEWORK_COLORS.values()]
    )
    return alt.Color("framework:N", scale=scale, legend=None)


def _speedup(field: str) -> alt.X:
    axis = alt.Axis(labelExpr=TICK_TEXT, title=None, tickCount=5, labelOverlap=True)
    return alt.X(field, scale=alt.Scale(type="log", nice=False), axis=axis)


def _whole(chart: Any, rows: str = "", step: int = 26) -> dict[str, Any]:
    """The specification as JSON, without the configuration, which is the page's. Its height is
    `step` for each value of the field `rows`, if one is named."""
    spec = chart.to_dict()
    spec.pop("config", None)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    if rows:
        spec["usermeta"] = {"rows": rows, "step": step}
    return spec


def forest() -> dict[str, Any]:
    """Speedups with intervals and starts. `pairs`: label, shown, speedup, low, high, framework;
    `starts`: label, speedup; `one`: 1x."""
    y = alt.Y(
        "label:N",
        sort=alt.EncodingSortField(field="place", op="min"),
        axis=alt.Axis(title=None, labelLimit=320, domain=False, ticks=False, grid=True),
    )
    tooltip = [
        alt.Tooltip("label:N", title="case"),
        alt.Tooltip("shown:N", title="speedup"),
        alt.Tooltip("verdict:N", title="verdict"),
        alt.Tooltip("versions:N", title="versions"),
    ]
    color = _framework_color()
    layers = [
        alt.Chart(_named("one")).mark_rule(strokeWidth=1.5, aria=False).encode(x="speedup:Q"),
        alt.Chart(_named("starts"))
        .mark_point(shape="stroke", angle=90, size=60, opacity=0.45, aria=False)
        .encode(y=y, x=_speedup("speedup:Q"), color=color),
        alt.Chart(_named("pairs"))
        .mark_rule(strokeWidth=2.5, aria=False)
        .encode(y=y, x=_speedup("low:Q"), x2="high:Q", color=color),
        alt.Chart(_named("pairs"))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(y=y, x=_speedup("speedup:Q"), color=color, tooltip=tooltip),
    ]
    return _whole(alt.LayerChart(layer=layers, width=_WIDTH), "label", 22)


def history() -> dict[str, Any]:
    """One series over nights, with a brush over an overview.

    `points`: time, value, low, high, line, versions, verdict, href; `intervals`: those of them that
    have one; `changes`: time, label of new
    versions and conditions; `marks`: time, label of suspicions and events; `one`: 1x, if it lies
    within the values. The value axis fits the nights within the brush; where there are none, that
    of all nights stays, with a sentence.
    """
    brush = alt.selection_interval(name="brush", encodings=["x"])
    time = alt.X("time:T", title=None, axis=alt.Axis(labelExpr=_NIGHT, grid=False, tickCount=6))
    zoomed = time.scale(domain=brush, padding=10)
    value = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(
            type="log",
            nice=False,
            padding=8,
            range=[_HISTORY_HEIGHT - _MARKS_HEIGHT, _LABELS_HEIGHT],
        ),
        axis=alt.Axis(labelExpr="format(datum.value, '~r') + suffix", tickCount=5),
    )
    small = alt.Y("value:Q", axis=None, scale=alt.Scale(type="log", nice=False, padding=8))
    main = alt.LayerChart(layer=_history_layers(brush, zoomed, value), width=600)
    overview = (
        alt.Chart(_named("points"))
        .mark_line(strokeWidth=1, aria=False)
        .encode(x=time.axis(None).scale(padding=10), y=small, detail="line:N")
        .add_params(brush)
        .properties(height=_OVERVIEW_HEIGHT, width=600)
    )
    whole = alt.vconcat(main.properties(height=_HISTORY_HEIGHT), overview, spacing=8)
    spec = _whole(whole)
    spec.pop("autosize")  # a concatenation has the widths that the script sets
    spec.setdefault("params", []).append({"name": "suffix", "value": "x"})
    return spec


def _history_layers(brush: alt.Parameter, time: alt.X, value: alt.Y) -> list[Any]:
    tooltip = [
        alt.Tooltip("time:T", title="night", format="%Y-%m-%d %H:%M"),
        alt.Tooltip("shown:N", title="value"),
        alt.Tooltip("versions:N", title="versions"),
        alt.Tooltip("verdict:N", title="verdict"),
        alt.Tooltip("conditions:N", title="conditions"),
    ]
    within = f"time(datum.time) >= {brush.name}.time[0] && time(datum.time) <= {brush.name}.time[1]"
    nights, ranges = (
        alt.Chart(_named(each)).transform_calculate(
            near=f"!isDefined({brush.name}.time) || ({within}) ? 1 : 0"
        )
        for each in ("points", "intervals")
    )
    # A filter that leaves no row makes Vega warn, so what is out of sight is clipped.
    points, intervals = (
        each.transform_joinaggregate(num_near="sum(near)").transform_filter(
            "datum.near || !datum.num_near"
        )
        for each in (nights, ranges)
    )
    changes, marks = (alt.Chart(_named(each)) for each in ("changes", "marks"))
    color = _framework_color()
    return [
        alt.Chart(_named("one")).mark_rule(strokeWidth=1.5, aria=False).encode(y=value),
        changes.mark_rule(strokeDash=[3, 3], opacity=0.55, aria=False, clip=True).encode(x=time),
        marks.mark_rule(color=_ALARM, strokeWidth=1.5, aria=False, clip=True).encode(x=time),
        *(_write_labels(changes, marks, time, late=late) for late in (False, True)),
        points.mark_line(strokeWidth=1, opacity=0.4, aria=False, clip=True).encode(
            x=time, y=value, detail="line:N"
        ),
        intervals.mark_rule(strokeWidth=1.5, opacity=0.55, aria=False, clip=True).encode(
            x=time, y=alt.Y("low:Q"), y2="high:Q", color=color
        ),
        points.mark_point(filled=True, size=42, opacity=1, cursor="pointer", clip=True).encode(
            x=time, y=value, color=color, tooltip=tooltip
        ),
        nights.transform_aggregate(num_near="sum(near)")
        .transform_calculate(shown=f"datum.num_near ? '' : '{_NO_NIGHT}'")
        .mark_text(fontSize=12)
        .encode(text="shown:N"),
    ]


def _write_labels(changes: Any, marks: Any, time: alt.X, *, late: bool) -> Any:
    """The labels of vertical lines: right of the line, or left of a `late` one near the edge."""
    side: dict[str, Any] = {"align": "right" if late else "left", "dx": -3 if late else 3}
    side["clip"] = True
    chosen = "datum.late" if late else "!datum.late"  # a filter could leave no row, and a warning
    above, below = (
        each.transform_calculate(shown=f"{chosen} ? datum.label : ''") for each in (changes, marks)
    )
    return alt.layer(
        above.mark_text(baseline="top", fontSize=10, **side).encode(
            x=time, y=alt.Y("row:Q", scale=None, axis=None), text="shown:N"
        ),
        below.mark_text(baseline="bottom", fontWeight="bold", fontSize=10, **side).encode(
            x=time, y=alt.value(_HISTORY_HEIGHT - 2), text="shown:N"
        ),
    )


def block_times() -> dict[str, Any]:
    """Every timed block of a duel. `points`: turn, ms, contender, start, framework, degraded."""
    shape = alt.Shape(
        "contender:N",
        sort=None,
        scale=alt.Scale(range=list(_SHAPES)),
        legend=alt.Legend(title=None),
    )
    axis = alt.Axis(grid=False, labels=False, ticks=False)
    starts = (
        alt.Chart(_named("points"))
        .transform_aggregate(turn="min(turn)", groupby=["start"])
        .transform_calculate(label="'start ' + datum.start")
        .mark_text(align="left", baseline="top", dx=-4, fontSize=10, aria=False)
        .encode(x="turn:Q", y=alt.value(0), text="label:N")
    )
    blocks = (
        alt.Chart(_named("points"))
        .mark_point(size=26, opacity=0.75)
        .encode(
            x=alt.X(
                "turn:Q",
                title="rounds of each start, in order",
                axis=axis,
                scale=alt.Scale(padding=14),
            ),
            # The words "start 1" stand above the highest point.
            y=alt.Y("ms:Q", title="ms per step", scale=alt.Scale(zero=False, padding=18)),
            color=_framework_color(),
            shape=shape.legend(orient="top", title=None, columns=2, labelLimit=300),
            opacity=alt.condition("datum.degraded", alt.value(0.2), alt.value(0.8)),
            tooltip=["contender:N", "start:O", "round:O", "ms:Q", "degraded:N"],
        )
    )
    return _whole(alt.LayerChart(layer=[blocks, starts], width=_WIDTH, height=240))


def distributions() -> dict[str, Any]:
    """The blocks of each contender as ticks. `points`: contender, ms, start, framework."""
    y = alt.Y("contender:N", title=None, sort=None, axis=_ROWS)
    chart = (
        alt.Chart(_named("points"), width=_WIDTH)
        .mark_tick(thickness=1.5, opacity=0.55)
        .encode(
            y=y,
            x=alt.X(
                "ms:Q",
                title="ms per step",
                scale=alt.Scale(zero=False, padding=6),
                axis=alt.Axis(tickCount=8, **_APART),
            ),
            color=_framework_color(),
            tooltip=["contender:N", "start:O", "ms:Q"],
        )
    )
    return _whole(chart, "contender")


def latencies() -> dict[str, Any]:
    """Latency of single steps by quantile. `points`: quantile, ms, contender, framework."""
    x = alt.X("quantile:Q", title="share of steps", axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("ms:Q", title="ms", scale=alt.Scale(zero=False, padding=6))
    legend = alt.Legend(
        orient="top",
        title=None,
        columns=2,
        labelLimit=300,
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeColor=FRAMEWORK_COLORS["Python"],
    )
    lines = (
        alt.Chart(_named("points"))
        .mark_line(aria=False)
        .encode(
            x=x,
            y=y,
            color=_framework_color(),
            strokeDash=alt.StrokeDash("contender:N", sort=None, legend=legend),
        )
    )
    dots = (
        alt.Chart(_named("points"))
        .mark_point(filled=True, size=18, opacity=1)
        .encode(x=x, y=y, color=_framework_color(), detail="contender:N", tooltip=_QUANTILE)
    )
    return _whole(alt.LayerChart(layer=[lines, dots], width=_WIDTH, height=200))


def stages() -> dict[str, Any]:
    """Seconds of each stage before the first timed step. `bars`: contender, stage, seconds."""
    y = alt.Y("contender:N", title=None, sort=None, axis=_ROWS)
    chart = (
        alt.Chart(_named("bars"), width=_WIDTH)
        .mark_bar(height=16)
        .encode(
            y=y,
            x=alt.X("seconds:Q", title="seconds", stack="zero"),
            color=alt.Color(
                "stage:N",
                sort=alt.EncodingSortField(field="order", op="min"),
                scale=alt.Scale(range=list(_STAGE_COLORS)),
                legend=alt.Legend(orient="top", title=None, columns=4),
            ),
            order="order:Q",
            tooltip=["contender:N", "stage:N", "seconds:Q"],
        )
    )
    return _whole(chart, "contender")


def roofline() -> dict[str, Any]:
    """Steps under the device's ceilings. `points`: intensity, share, contender, framework; `roof`:
    intensity, share of the compute ceiling that the bandwidth allows."""
    x = alt.X(
        "intensity:Q",
        title="FLOP per byte, at the least",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(tickCount=5, **_APART),
    )
    y = alt.Y(
        "share:Q",
        title="share of the compute ceiling",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(format="~%", tickCount=4),
    )
    roof = alt.Chart(_named("roof")).mark_line(strokeWidth=1.5, color=COLORS[2]).encode(x=x, y=y)
    points = (
        alt.Chart(_named("points"))
        .mark_point(filled=True, size=80)
        .encode(
            x=x,
            y=y,
            color=_framework_color(),
            shape=alt.Shape(
                "contender:N",
                sort=None,
                scale=alt.Scale(range=list(_SHAPES)),
                legend=alt.Legend(
                    orient="top",
                    title=None,
                    labelLimit=300,
                    columns=2,
                    symbolFillColor=FRAMEWORK_COLORS["Python"],
                ),
            ),
            tooltip=["contender:N", "intensity:Q", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return _whole(alt.LayerChart(layer=[roof, points], width=_WIDTH, height=220))


def write_specifications() -> str:
    """The content of `charts.json`: each chart by the name that `blocks.chart` uses."""
    charts = (forest, history, block_times, distributions, latencies, stages, roofline)
    return json.dumps({each.__name__: each() for each in charts}, indent=1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_specifications(), encoding="utf-8")
