"""A campaign is published beside what the dashboard has; a new one gets what a minute allows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns, list_newest_campaigns
from dashboards import publish
from dashboards.site.files import SiteFiles


def test_a_new_site_gets_the_newest_campaigns(
    nights: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    monkeypatch.setattr(publish, "_MOST_DUELS", 12)
    state = open_state(tmp_path / "state")
    shutil.copy(nights.root / "deadheat.db", state.root / "deadheat.db")
    engine = open_database(state.database_url)
    every = list_campaigns(engine)
    newest = list_newest_campaigns(engine, 12)
    assert newest == every[-len(newest) :] and 1 <= len(newest) < len(every)
    publish.publish_campaign(state, every[0])
    files = SiteFiles(state.site)
    names = {each["name"] for each in files.read("catalog")["campaigns"]}
    assert names == {every[0], *newest}
    left = len(every) - len(newest) - 1
    assert f"The database has {left} more campaigns" in str(files.read("pages/runs"))
    assert list_newest_campaigns(engine, 0) == every[-1:]
    engine.dispose()
