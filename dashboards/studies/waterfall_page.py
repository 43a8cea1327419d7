"""The waterfall's table, its chart and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt

from dashboards.figures.forest_chart import COLORS, layer_chart, left_text, right_text
from dashboards.formatting import format_ns, format_speedup
from dashboards.listings.bottlenecks import describe_bottleneck
from dashboards.templating import render_template

_ROW_STEP = 48
_LABEL_OFFSET, _BAR_OFFSET = -13, 7
_KINDS = ("faster", "slower", "same or unknown", "JAX")
_COLORS = (*COLORS, "#2a9d6f")


def list_arms(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per arm, also for arms that did not run, with the reason."""
    return [
        {
            "arm": arm["label"],
            "name": arm["name"] or "",
            "step": "" if arm["median_step_ns"] is None else format_ns(arm["median_step_ns"]),
            "against the one before": format_gain(arm),
            "verdict": arm.get("verdict") or "",
            "starts": arm.get("num_starts") or "",
            "note": _describe_problem(arm),
        }
        for arm in found["arms"]
    ]


def _describe_problem(arm: Mapping[str, Any]) -> str:
    if arm["status"] in ("ok", "left out"):
        return "" if arm.get("factor") else arm["reason"]
    return f"{arm['status']}: {arm['reason']}"


def format_gain(gain: Mapping[str, Any]) -> str:
    """`1.31x (1.28 to 1.34)` from factors; empty if there is none."""
    if gain.get("factor") is None:
        return ""
    logs = [math.nan if gain[key] is None else math.log(gain[key]) for key in ("low", "high")]
    return format_speedup(math.log(gain["factor"]), *logs)


def describe_total(found: Mapping[str, Any]) -> str:
    """One sentence: the total gain of torch's settings, measured and as their product."""
    ran = [arm["label"] for arm in found["arms"] if arm["median_step_ns"] is not None]
    of_torch = [label for label in ran if label != "JAX"]
    if found["whole"] is None or found["product"] is None:
        return "Not all settings were measured, so there is no total."
    return (
        f"From {of_torch[0]} to {of_torch[-1]}, PyTorch becomes "
        f"{format_gain(found['whole'])} as fast; "
        f"the product of the single gains is {found['product']:.2f}x."
    )


def waterfall_chart(found: Mapping[str, Any]) -> alt.LayerChart:
    """One bar per arm: its step time for the first arm and JAX, else its gain."""
    bars = list_bars(found)
    order = [bar["arm"] for bar in bars]
    values = alt.InlineData(values=bars)
    y = alt.Y("arm:N", sort=order, axis=None, scale=alt.Scale(domain=order))
    longest = max((bar["to"] for bar in bars), default=1.0)
    scale = alt.Scale(domain=[0, longest], nice=False)
    x = alt.X("from:Q", scale=scale, title="milliseconds per step")
    color = alt.Color(
        "kind:N", scale=alt.Scale(domain=list(_KINDS), range=list(_COLORS)), legend=None
    )
    return layer_chart(
        [
            alt.Chart(values)
            .mark_bar(height=16, cornerRadius=2, yOffset=_BAR_OFFSET)
            .encode(y=y, x=x, x2="to:Q", color=color),
            alt.Chart(values)
            .mark_tick(thickness=2, height=24, yOffset=_BAR_OFFSET)
            .encode(y=y, x=alt.X("ends:Q", scale=scale)),
            left_text(values, _LABEL_OFFSET).encode(y=y, x=alt.XValue(0), text="arm:N"),
            right_text(values, _LABEL_OFFSET).encode(y=y, x=alt.XValue("width"), text="label:N"),
        ],
        _ROW_STEP * max(1, len(order)),
        "The step time of each arm, from torch eager to JAX. The table below holds the same "
        "numbers.",
    )


def list_bars(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One bar per arm that ran, in milliseconds: `from`, `to`, and `ends`, its step time."""
    bars: list[dict[str, Any]] = []
    before: float | None = None
    for arm in found["arms"]:
        if arm["median_step_ns"] is None:
            continue
        ends = arm["median_step_ns"] / 1e6
        whole = before is None or arm["label"] == "JAX"
        begins = 0.0 if whole or before is None else before
        verdict = arm.get("verdict")
        kind = verdict if verdict in ("faster", "slower") else "same or unknown"
        bars.append(
            {
                "arm": arm["label"],
                "from": min(begins, ends),
                "to": max(begins, ends),
                "ends": ends,
                "kind": "JAX" if arm["label"] == "JAX" else kind,
                "label": ", ".join(filter(None, (format_ns(ends * 1e6), format_gain(arm)))),
            }
        )
        before = ends
    return bars


def render_waterfall(found: Mapping[str, Any]) -> str:
    """The page's HTML. Every string from a result is escaped."""
    chart = waterfall_chart(found)
    labels = {arm["name"]: arm["label"] for arm in found["arms"]}
    return render_template(
        "waterfall.html.j2",
        {"waterfall": chart.to_dict()},
        found=found,
        arms=list_arms(found),
        whole=describe_total(found),
        why=[
            {**describe_bottleneck(row), "name": labels.get(row["name"], row["name"])}
            for row in found["why"]
        ],
        description=chart.description,
    )
