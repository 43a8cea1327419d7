"""The waterfall's table, its chart and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
from markupsafe import Markup

from dashboards.publish import (
    content_policy,
    escape_json,
    jinja_environment,
    read_template,
    vega_bundle,
    write_page,
)
from dashboards.why import format_intensity, tell_reason
from dashboards.wording import format_ns, format_share, format_speedup

_ROW_STEP = 46
_KINDS = ("faster", "slower", "same or unknown", "JAX")
# Told apart by the color-blind on white and on black; each bar carries its own words besides.
_COLORS = ("#2f80c3", "#d5761a", "#8a8f98", "#2a9d6f")


def list_arms(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row an arm, those left out too, with the reason."""
    return [
        {
            "arm": arm["label"],
            "name": arm["name"] or "",
            "step": "" if arm["median_step_ns"] is None else format_ns(arm["median_step_ns"]),
            "against the one before": say_gain(arm),
            "verdict": arm.get("verdict") or "",
            "starts": arm.get("num_starts") or "",
            "note": _tell_note(arm),
        }
        for arm in found["arms"]
    ]


def _tell_note(arm: Mapping[str, Any]) -> str:
    if arm["status"] in ("ok", "left out"):
        return "" if arm.get("factor") else arm["reason"]
    return f"{arm['status']}: {arm['reason']}"


def say_gain(gain: Mapping[str, Any]) -> str:
    """`1.31x (1.28 to 1.34)`, of factors; empty where there is none."""
    if gain.get("factor") is None:
        return ""
    logs = [math.nan if gain[key] is None else math.log(gain[key]) for key in ("low", "high")]
    return format_speedup(math.log(gain["factor"]), *logs)


def say_whole(found: Mapping[str, Any]) -> str:
    """One sentence: all of torch's steps together, as their product and as measured."""
    ran = [arm["label"] for arm in found["arms"] if arm["median_step_ns"] is not None]
    of_torch = [label for label in ran if label != "JAX"]
    if found["whole"] is None or found["product"] is None:
        return "The steps were not all measured, so there is no whole."
    return (
        f"From {of_torch[0]} to {of_torch[-1]} torch becomes {say_gain(found['whole'])} as fast; "
        f"its steps multiply to {found['product']:.2f}x."
    )


def waterfall_chart(found: Mapping[str, Any]) -> alt.LayerChart:
    """A bar an arm: the first and JAX whole, the others what they took off the one before."""
    bars = list_bars(found)
    order = [bar["arm"] for bar in bars]
    values = alt.InlineData(values=bars)
    y = alt.Y("arm:N", sort=order, title=None, scale=alt.Scale(domain=order))
    longest = max((bar["to"] for bar in bars), default=1.0)
    scale = alt.Scale(domain=[0, 1.45 * longest], nice=False)
    x = alt.X("from:Q", scale=scale, title="milliseconds a step")
    color = alt.Color(
        "kind:N", scale=alt.Scale(domain=list(_KINDS), range=list(_COLORS)), legend=None
    )
    return alt.LayerChart(
        layer=[
            alt.Chart(values)
            .mark_bar(height=20, cornerRadius=2)
            .encode(y=y, x=x, x2="to:Q", color=color),
            alt.Chart(values)
            .mark_tick(thickness=2, height=30)
            .encode(y=y, x=alt.X("ends:Q", scale=scale)),
            alt.Chart(values)
            .mark_text(align="left", baseline="middle", dx=6)
            .encode(y=y, x=alt.X("to:Q", scale=scale), text="words:N"),
        ],
        width="container",
        height=_ROW_STEP * max(1, len(order)),
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        description="How long a step of each arm takes, from torch eager to JAX. "
        "The table below holds the same numbers.",
    )


def list_bars(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each arm that ran, in milliseconds: `from` and `to`, and where its own time `ends`."""
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
                "words": "  ".join(filter(None, (format_ns(ends * 1e6), say_gain(arm)))),
            }
        )
        before = ends
    return bars


def publish_waterfall(found: Mapping[str, Any], folder: Path) -> Path:
    """Write `waterfall.html` into the folder, whole or not at all; returns its path."""
    return write_page(render_waterfall(found), folder, "waterfall.html")


def render_waterfall(found: Mapping[str, Any]) -> str:
    """The page's text. Every string that comes from a result is escaped."""
    scripts = [vega_bundle(), read_template("charts.js")]
    chart = waterfall_chart(found)
    why = [
        {
            **{key: row[key] for key in ("name", "bottleneck", "advice")},
            "reason": tell_reason(row),
            "intensity": format_intensity(row),
            "compute": format_share(row["compute_share"], 1.0),
            "bandwidth": format_share(row["bandwidth_share"], 1.0),
            "outside": format_share(row["host_share"], 1.0),
        }
        for row in found["why"]
    ]
    return (
        jinja_environment()
        .get_template("waterfall.html.j2")
        .render(
            found=found,
            arms=list_arms(found),
            whole=say_whole(found),
            why=why,
            description=chart.description,
            charts_json=Markup(escape_json({"waterfall": chart.to_dict()})),
            style=Markup(read_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            policy=content_policy(scripts),
        )
    )
