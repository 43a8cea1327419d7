"""Where an answer's link to its page leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchcore.state import State


def test_a_link_leads_to_the_campaigns_own_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to the site's first, which will be another's tomorrow."""
    state = State(Path("/srv/state"))
    monkeypatch.delenv("DEADHEAT_DASHBOARD_URL", raising=False)
    assert state.link_page("night-1") == "file:///srv/state/site/night-1/index.html"
    monkeypatch.setenv("DEADHEAT_DASHBOARD_URL", "http://127.0.0.1:4201/")
    assert state.link_page("night-1") == "http://127.0.0.1:4201/night-1/index.html"
    assert state.link("events.html#event-1") == "http://127.0.0.1:4201/events.html#event-1"
    monkeypatch.delenv("DEADHEAT_DASHBOARD_URL")
    assert state.link("events.html#event-1") == "file:///srv/state/site/events.html#event-1"
