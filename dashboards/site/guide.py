"""The page Guide: which framework for me? Only from measured rows that passed the checks."""

from __future__ import annotations

from benchcore.store.database import Engine
from dashboards.site import blocks
from dashboards.site.blocks import Block
from dashboards.site.pages import PAGES

_TITLE = next(each.title for each in PAGES if each.stem == "guide")


def guide_page(engine: Engine) -> Block:
    """The content of `guide.html`."""
    del engine
    return blocks.page(_TITLE, [blocks.text("No sentence has a measured row behind it yet.")])
