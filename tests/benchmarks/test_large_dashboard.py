"""The benchmark of a large dashboard builds one, adds a night, and opens its pages."""

from __future__ import annotations

import shutil

import large_dashboard
import pytest

from benchcore.state import State
from benchcore.store.copies.transfer import find_damage
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from dashboards.website.files import WebsiteFiles


def test_a_night_of_copies_is_one_campaign_and_is_added_alone(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_dashboard, "DAYS", 1)
    monkeypatch.setattr(large_dashboard, "CASES_FACTOR", 2)
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    engine = open_database(state.database_url, made_up=True)
    large_dashboard.fill(state, engine, 250)
    found = large_dashboard.measure(state, engine)
    assert find_damage(engine) == []
    assert found["contender_runs"] >= 200 and found["campaigns"] == 2
    catalog = WebsiteFiles(state.website).read("catalog")
    old, copied, added = catalog["campaigns"]
    assert copied["measured"] == added["measured"] == 2 * old["measured"]
    assert added["name"] == list_campaigns(engine)[-1] and added["kind"] == "nightly"
    assert 0 < found["added_files"] <= added["measured"] + 5
    engine.dispose()
    if shutil.which("chromium"):
        addresses = ["index.html", "compare.html"]
        assert dict(large_dashboard.time_pages(state.website, addresses)).keys() == set(addresses)
