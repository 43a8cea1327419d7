"""Charts as images: SVG for Prefect's UI, PNG for alerts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import altair as alt
import vl_convert

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.history.series import KEY_COLUMNS, read_series
from benchcore.store.history.suspicions import list_suspicions
from benchcore.store.metrics import find_tracked
from benchcore.verdict.history.series import STEP_TIME, Series, SeriesKey
from dashboards.figures.forest_chart import PAIR_DIRECTIONS, forest_chart, pair_rows
from dashboards.frames import counting, select_rows
from dashboards.website.specifications import VEGA_LITE

_WIDTH = 640


def draw_forest(state: State, campaign: str) -> str | None:
    """A campaign's speedups with intervals and starts as SVG; None if no pair counts."""
    pairs = ratio_frame(open_database(state.database_url), campaign)
    counted = select_rows(pairs, counting(pairs))
    if counted.empty:
        return None
    chart = forest_chart(
        pair_rows(counted),
        directions=PAIR_DIRECTIONS,
        description="Speed of the first relative to the second, with intervals and single starts.",
    ).to_dict()
    return to_svg(chart)


def to_svg(chart: Mapping[str, Any]) -> str:
    """A chart's specification as an SVG image, on white, as Prefect's UI may be dark."""
    padding = {"left": 12, "right": 12, "top": 8, "bottom": 8}
    drawn = {**chart, "width": _WIDTH, "background": "white", "padding": padding}
    return vl_convert.vegalite_to_svg(drawn, vl_version=VEGA_LITE)


def draw_forest_png(state: State, campaign: str) -> bytes | None:
    """The forest plot as a PNG for messages."""
    svg = draw_forest(state, campaign)
    return None if svg is None else vl_convert.svg_to_png(svg, scale=2)


def chart_series(series: Series, since_run: str) -> dict[str, Any]:
    """The nights of a series with a rule at the duel run where it is suspected to have changed."""
    nights = [
        {"night": night.at.isoformat(), "ratio": math.exp(night.log_ratio)}
        for night in series.nights
    ]
    row = series.list_rows().get(since_run)
    since = [] if row is None else [nights[row]]
    metric = find_tracked(series.key.metric)
    title = "times as fast" if metric.key == STEP_TIME else f"{metric.heading}, ratio (x)"
    points = (
        alt.Chart(alt.InlineData(values=nights))
        .mark_line(point=True)
        .encode(
            x=alt.X("night:T", title=None),
            y=alt.Y("ratio:Q", title=title, scale=alt.Scale(zero=False)),
        )
    )
    rule = alt.Chart(alt.InlineData(values=since)).mark_rule(strokeDash=[4, 4]).encode(x="night:T")
    return (points + rule).properties(width=_WIDTH, height=240, title=series.key.title).to_dict()


def draw_series_png(state: State, suspicion: int) -> bytes | None:
    """The ratio of a suspicion's series over its nights, with a rule where it is suspected to have
    changed; None if the series no longer counts."""
    engine = open_database(state.database_url)
    [row] = [each for each in list_suspicions(engine) if each["id"] == suspicion]
    series = read_series(engine, SeriesKey(**{name: row[name] for name in KEY_COLUMNS}))
    if not series:
        return None
    chart = chart_series(series[0], row["since_run"])
    return vl_convert.vegalite_to_png(chart, vl_version=VEGA_LITE, scale=2)


def to_data_uri(svg: str) -> str:
    """The SVG as a data URI, which any image element can show."""
    return f"data:image/svg+xml,{quote(svg)}"
