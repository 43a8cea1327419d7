"""Figures for papers, as PDF: what a step costs in each framework, and how it scales by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from benchcore.names import name_arm, name_case_in_words, name_setting
from dashboards.figures.forest_chart import COLORS
from dashboards.formatting import is_missing
from dashboards.website.names import order_words
from dashboards.website.specifications import VEGA_LITE

METRICS = {
    "throughput": ("items_per_s", "Items per second", 1.0),
    "latency": ("latency_p50_ns", "Median latency in ms", 1e-6),
    "memory": ("process_peak_bytes", "Peak process memory in MiB", 2.0**-20),
    "energy": ("gross_mj", "Energy per step in mJ", 1.0),
}
"""File, metric, caption and factor of each table and chart."""
_WIDTH, _STEP = 360, 15
# Okabe and Ito's palette, for color-blind readers, besides the dashboard's colors.
_COLORS = (*COLORS[:2], "#009e73", COLORS[2], "#cc79a7", "#b8a000")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


@dataclass(frozen=True)
class Figure:
    """A figure, and how many values it shows."""

    pdf: bytes
    rows: int


def draw_figures(measured: pd.DataFrame) -> dict[str, Figure]:
    """A figure per metric that was measured, `figure-NAME`, and `figure-scaling` where a model was
    measured in more than one batch size. Only the newest value of a case, device and arm."""
    found = {name: list_costs(measured, name) for name in METRICS}
    found["scaling"] = list_scaling(measured)
    return {
        f"figure-{name}": Figure(_print(draw(name, rows)), len(rows))
        for name, rows in found.items()
        if rows
    }


def draw(name: str, rows: list[dict[str, Any]]) -> alt.Chart | alt.FacetChart:
    """The chart of a figure, by its name."""
    return _draw_scaling(rows) if name == "scaling" else _draw_costs(rows, METRICS[name][1])


def _print(chart: alt.Chart | alt.FacetChart) -> bytes:
    return vl_convert.vegalite_to_pdf(chart.to_dict(), vl_version=VEGA_LITE)


def list_costs(measured: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """The newest value of each case, device and arm of a metric, in the unit of its caption."""
    metric, _, factor = METRICS[name]
    return [
        {
            "case": f"{name_case_in_words(row)}{_name_device(row, measured)}",
            "arm": name_arm(row["framework"], row["arm"]),
            "value": float(row[metric]) * factor,
        }
        for row in _list_newest(measured, metric)
    ]


def list_scaling(measured: pd.DataFrame) -> list[dict[str, Any]]:
    """Items per second by batch, of what was measured in two batch sizes or more."""
    points = [
        {
            "setting": f"{name_setting(row)}{_name_device(row, measured)}",
            "arm": name_arm(row["framework"], row["arm"]),
            "batch": int(row["batch"]),
            "value": float(row["items_per_s"]),
        }
        for row in _list_newest(measured, "items_per_s")
        if not is_missing(row["batch"])
    ]
    batches: dict[str, set[int]] = {}
    for each in points:
        batches.setdefault(each["setting"], set()).add(each["batch"])
    return [each for each in points if len(batches[each["setting"]]) > 1]


def _list_newest(measured: pd.DataFrame, metric: str) -> Iterable[Mapping[str, Any]]:
    found: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for row in measured.sort_values("started_at", kind="stable").to_dict("records"):
        if not is_missing(row[metric]):
            keys = ("workload", "case_name", "track", "device_fingerprint", "framework", "arm")
            found[tuple(str(row[key]) for key in keys)] = {str(k): each for k, each in row.items()}
    return found.values()


def _name_device(row: Mapping[str, Any], measured: pd.DataFrame) -> str:
    """Only where there are several."""
    return f", {row['device_model']}" if len(set(measured["device_model"])) > 1 else ""


def _encode_arm(rows: list[dict[str, Any]]) -> tuple[alt.Color, alt.Shape]:
    """A color and a shape per arm, in the same order in every figure."""
    arms = sorted({each["arm"] for each in rows})
    legend = alt.Legend(title=None, orient="top", columns=2, labelLimit=_WIDTH)
    return (
        alt.Color("arm:N", scale=alt.Scale(domain=arms, range=list(_COLORS)), legend=legend),
        alt.Shape("arm:N", scale=alt.Scale(domain=arms, range=list(_SHAPES)), legend=legend),
    )


def _draw_costs(rows: list[dict[str, Any]], title: str) -> alt.Chart:
    """A row per case: a log axis, as costs of models differ by orders of magnitude."""
    color, shape = _encode_arm(rows)
    cases = sorted({each["case"] for each in rows}, key=order_words)
    return (
        alt.Chart(alt.InlineData(values=rows))
        .mark_point(filled=True, size=40, opacity=0.9)
        .encode(
            x=alt.X("value:Q", scale=alt.Scale(type="log", nice=False, padding=8), title=title),
            y=alt.Y("case:N", title=None, sort=cases, axis=alt.Axis(labelLimit=400, grid=True)),
            color=color,
            shape=shape,
        )
        .properties(width=_WIDTH, height=alt.Step(_STEP))
    )


def _draw_scaling(rows: list[dict[str, Any]]) -> alt.FacetChart:
    color, shape = _encode_arm(rows)
    lines = (
        alt.Chart()
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=30))
        .encode(
            x=alt.X("batch:Q", scale=alt.Scale(type="log", base=2), title="Batch"),
            y=alt.Y("value:Q", scale=alt.Scale(type="log"), title="Items per second"),
            color=color,
            shape=shape,
        )
        .properties(width=_WIDTH / 2, height=_WIDTH / 3)
    )
    facets = alt.Facet("setting:N", title=None, header=alt.Header(labelLimit=_WIDTH / 2))
    return (
        lines.facet(facets, columns=2, data=alt.InlineData(values=rows))
        .resolve_scale(y="independent", x="independent")
        .resolve_axis(x="independent")
    )
