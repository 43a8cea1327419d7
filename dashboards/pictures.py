"""Charts as SVG images, for Prefect's UI."""

from __future__ import annotations

from urllib.parse import quote

import altair as alt
import vl_convert

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.ratios import ratio_frame
from dashboards.forest_chart import PAIR_DIRECTIONS, forest_chart, pair_rows
from dashboards.frames import counting, keep

_WIDTH = 640
VEGA_LITE = alt.SCHEMA_VERSION.rpartition(".")[0]
"""The version of Vega-Lite that altair writes for, as vl-convert names it."""


def draw_forest(state: State, campaign: str) -> str | None:
    """A campaign's speedups with intervals and starts as SVG; None if no pair counts."""
    pairs = ratio_frame(open_database(state.database_url), campaign)
    counted = keep(pairs, counting(pairs))
    if counted.empty:
        return None
    chart = forest_chart(
        pair_rows(counted),
        directions=PAIR_DIRECTIONS,
        description="Speed of the first relative to the second, with intervals and single starts.",
    ).to_dict()
    padding = {"left": 12, "right": 12, "top": 8, "bottom": 8}
    drawn = {**chart, "width": _WIDTH, "background": "white", "padding": padding}
    return vl_convert.vegalite_to_svg(drawn, vl_version=VEGA_LITE)


def to_data_uri(svg: str) -> str:
    """The SVG as a data URI, which any image element can show."""
    return f"data:image/svg+xml,{quote(svg)}"
