"""Charts as pictures of their own, for places that show no page of ours: Prefect's UI."""

from __future__ import annotations

from urllib.parse import quote

import altair as alt
import vl_convert

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames import ratio_frame
from dashboards.frames import counting, keep
from dashboards.ratios import PAIR_DIRECTIONS, forest_chart, pair_rows

_WIDTH = 640
VEGA_LITE = alt.SCHEMA_VERSION.rpartition(".")[0]
"""The version of Vega-Lite that altair writes for, as vl-convert names it."""


def draw_forest(state: State, campaign: str) -> str | None:
    """A campaign's speedups with their intervals and starts as SVG; None where no pair counts."""
    pairs = ratio_frame(open_database(state.database_url), campaign)
    counted = keep(pairs, counting(pairs))
    if counted.empty:
        return None
    chart = forest_chart(
        pair_rows(counted),
        directions=PAIR_DIRECTIONS,
        description="How many times as fast the first is, with intervals and single starts.",
    ).to_dict()
    padding = {"left": 12, "right": 12, "top": 8, "bottom": 8}
    drawn = {**chart, "width": _WIDTH, "background": "white", "padding": padding}
    return vl_convert.vegalite_to_svg(drawn, vl_version=VEGA_LITE)


def to_data_uri(svg: str) -> str:
    """The picture as an address that holds all of it: it shows wherever an image is shown."""
    return f"data:image/svg+xml,{quote(svg)}"
