"""A sweep's table, its chart and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from benchcore.names import format_percent, name_model
from dashboards.figures.forest_chart import COLORS
from dashboards.figures.pictures import to_svg
from dashboards.formatting import (
    NOT_MEASURED,
    format_bytes,
    format_factor,
    format_ns,
    format_rate,
    format_seconds,
    format_speedup,
)
from dashboards.templating import render_template

_OF_SHAPES = (
    ("new shape", "new_shape_s", format_seconds),
    ("step after new shapes", "after_new_shapes", format_factor),
)
"""The longest first step at a new shape, and a step afterwards over a step before it."""
_AXES = {"batch": "Batch", "devices": "Devices", "size": "Size", "models": "Models"}


def list_points(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per value: both sides as text, their ratio, and why a number is missing. What new
    shapes cost is shown of cases that meet some."""
    shapes = [
        (heading, key, form)
        for heading, key, form in _OF_SHAPES
        if any(point[side][key] is not None for point in found["points"] for side in "ab")
    ]
    return [
        {
            found["varied"]: point["value"],
            "case": point["case"],
            **{side: _describe_side(point[side]) for side in ("a", "b")},
            **{f"{side} per s": _format_rate(point[side]) for side in ("a", "b")},
            **{f"{side} memory": _format_memory(point[side]) for side in ("a", "b")},
            **_describe_efficiencies(point, found["varied"]),
            **{f"{side} compile": format_seconds(point[side]["cold_compile_s"]) for side in "ab"},
            **{
                f"{side} {heading}": form(point[side][key])
                for heading, key, form in shapes
                for side in "ab"
            },
            **_describe_ratio(point["ratio"]),
        }
        for point in found["points"]
    ]


def list_pairs(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The columns with both sides: heading, and the keys of a and b in the rows of `list_points`.
    After step, samples per second and memory come what compiling and new shapes cost."""
    return [
        (heading, f"a{end}", f"b{end}") for end, heading in _PAIRS.items() if f"a{end}" in points[0]
    ]


def title_sweep(found: Mapping[str, Any]) -> str:
    """The model and both sides."""
    names = found["names"]
    return f"{name_model(found['workload'])}: a is {names['a']}, b is {names['b']}"


def split_columns(varied: str, points: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The keys of these rows of `list_points` as two tables for text: speeds, with the efficiency
    over devices, and what compiling and new shapes cost."""
    num_speeds = _NUM_SPEEDS
    speeds = [varied, "a", "b", "a per s", "b per s", "speedup", "verdict", "counts"]
    if varied == "devices":
        num_speeds += 1
        speeds[5:5] = ["a efficiency", "b efficiency"]
    costs = [key for _, *keys in list_pairs(points)[num_speeds:] for key in keys]
    return speeds, [varied, *costs]


_NUM_SPEEDS = 3
"""Step, samples per second and memory come first, and over devices the efficiency."""


_PAIRS = {
    "": "Step",
    " per s": "Samples per second",
    " memory": "Memory",
    " efficiency": "Efficiency",
    " compile": "Compilation",
    " new shape": "First step of a new shape",
    " step after new shapes": "Step after new shapes",
}


def _describe_side(side: Mapping[str, Any]) -> str:
    took = side["median_step_ns"]
    if side["status"] == "ok":
        return NOT_MEASURED if took is None else format_ns(took)
    return side["status"]


def _format_rate(side: Mapping[str, Any]) -> str:
    return "" if side["items_per_s"] is None else format_rate(side["items_per_s"])


def _describe_efficiencies(point: Mapping[str, Any], varied: str) -> dict[str, str]:
    """`85 % (81 to 89 %)` of the ideal speedup over the fewest devices."""
    if varied != "devices":
        return {}
    return {f"{side} efficiency": _format_efficiency(point[side]) for side in "ab"}


def _format_efficiency(side: Mapping[str, Any]) -> str:
    share, low, high = (side[f"efficiency{end}"] for end in ("", "_low", "_high"))
    if share is None:
        return ""
    if low is None or high is None:
        return f"{format_percent(share)} (no interval)"
    return f"{format_percent(share)} ({100 * low:.0f} to {format_percent(high)})"


def _format_memory(side: Mapping[str, Any]) -> str:
    """The peak of the device's allocator, on a CPU that of the process."""
    peak = side["allocator_peak_bytes"] or side["process_peak_bytes"]
    return "" if peak is None else format_bytes(peak)


def _describe_ratio(ratio: Mapping[str, Any] | None) -> dict[str, Any]:
    if ratio is None or ratio["speedup"] is None:
        note = "" if ratio is None else ratio["reason"]
        return {"speedup": "", "verdict": "", "counts": "no", "note": note}
    logs = [math.nan if ratio[key] is None else math.log(ratio[key]) for key in _ENDS]
    return {
        "speedup": format_speedup(*logs),
        "verdict": ratio["verdict"],
        "counts": "yes" if ratio["counts"] else "no",
        "note": "" if ratio["counts"] else ratio["reason"],
    }


def describe_crossing(found: Mapping[str, Any]) -> str:
    """`torch-eager-batching-loop is faster below 3.1 models, torch-eager above (95 % interval
    2.2 to 4.4, interpolated between the values).`, or why the lead does not change sides."""
    crossing, names = found["crossing"], found["names"]
    if crossing["value"] is None:
        side, _, rest = crossing["reason"].partition(" ")
        reason = f"{names[side]} {rest}" if side in names else crossing["reason"]
        return f"No crossing is shown: {reason}."
    value, low, high = (f"{crossing[key]:.3g}" for key in ("value", "low", "high"))
    before, after = (names[crossing[key]] for key in ("before", "after"))
    at = {"batch": f"batch {value}", "models": f"{value} models"}[found["varied"]]
    return (
        f"{before} is faster below {at}, {after} above (95 % interval {low} to {high}, "
        "interpolated between the values)."
    )


_ENDS = ("speedup", "low", "high")


def sweep_chart(found: Mapping[str, Any]) -> alt.Chart:
    """Samples per second of both sides over what varies."""
    varied, names = found["varied"], found["names"]
    values = [
        {"value": point["value"], "side": names[side], "rate": point[side]["items_per_s"]}
        for point in found["points"]
        for side in ("a", "b")
        if point[side]["items_per_s"] is not None
    ]
    order = [point["value"] for point in found["points"]]
    color = alt.Scale(domain=[names["a"], names["b"]], range=list(COLORS[:2]))
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("value:O", sort=order, title=_AXES[varied], axis=alt.Axis(labelAngle=0)),
            y=alt.Y("rate:Q", title="samples per second", scale=alt.Scale(zero=True)),
            color=alt.Color("side:N", scale=color, title=None, legend=alt.Legend(orient="top")),
            shape=alt.Shape("side:N", title=None, legend=None),
        )
        .properties(
            width="container",
            height=260,
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
            description=f"Samples per second of both sides over {_AXES[varied].lower()}. "
            "The table below holds the same numbers.",
        )
    )


def draw_sweep(found: Mapping[str, Any]) -> str:
    """The curve as an SVG image."""
    return to_svg(sweep_chart(found).to_dict())


def render_sweep(found: Mapping[str, Any]) -> str:
    """The page's HTML. Every string from a result is escaped."""
    chart, points = sweep_chart(found), list_points(found)
    return render_template(
        "sweep.html.j2",
        {"sweep": chart.to_dict()},
        found=found,
        model=name_model(found["workload"]),
        axis=_AXES[found["varied"]],
        points=points,
        pairs=list_pairs(points),
        description=chart.description,
        crossing=describe_crossing(found) if found["crossing"] is not None else "",
    )
