"""One published dashboard for all tests of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_nights import ADHOC, NIGHTS, name_night, store_nights
from page_visits import launch_browser
from playwright.sync_api import Browser

from benchcore.state import State, open_state
from dashboards.publish import publish_campaign, publish_study


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A state folder whose dashboard shows made-up nights; tests only read it."""
    state = open_state(tmp_path_factory.mktemp("nights"))
    store_nights(state).dispose()
    publish_campaign(state, name_night(NIGHTS - 1))
    publish_study(state, ADHOC, "waterfall.html", "<html data-ready><h1>A waterfall</h1>")
    return state


@pytest.fixture(scope="session")
def website(nights: State) -> Path:
    return nights.website


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of pages."""
    with launch_browser() as browser:
        yield browser
