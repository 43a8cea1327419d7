"""Pruned nights leave documents and rows, and the files of no more nights than are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import retention

from benchcore.environments.build import list_environments
from benchcore.planning.matrix import load_plan, save_plan
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from dashboards.website.files import WebsiteFiles


def test_old_nights_keep_their_results_alone(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"environment": 100_000, "duel": 10_000, "page of Data Docs": 1_000}
    monkeypatch.setattr(retention, "SIZES", sizes)
    rows = list(retention.live(state, 5, 2, row_every=3))
    assert [row["nights"] for row in rows] == [3, 5]
    assert all(len(row["seconds"]) == 7 and min(row["seconds"].values()) > 0 for row in rows)
    engine = open_database(state.database_url)
    campaigns = list_campaigns(engine)
    engine.dispose()
    assert len(campaigns) == 5
    with_files = [each for each in campaigns if (state.campaigns / each / "duels").exists()]
    assert with_files == campaigns[-2:]
    assert [each for each in campaigns if state.data_docs(each).exists()] == campaigns[-2:]
    catalog = WebsiteFiles(state.website).read("catalog")
    assert [each["name"] for each in catalog["campaigns"] if each["docs"]] == campaigns[-2:]
    runs = (state.website / "data" / "pages" / "runs.js").read_text()
    assert re.findall(r'"([^"]+)/checks/index.html"', runs) == campaigns[:2:-1]
    packed = [each for each in campaigns if not any((state.spool / each).glob("*.json"))]
    assert packed == campaigns[:-2]
    assert all(any((state.spool / each).iterdir()) for each in campaigns)


def test_nights_are_pruned_as_a_night_prunes(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an undecided suspicion compares stays."""
    monkeypatch.setattr(retention, "SIZES", dict.fromkeys(retention.SIZES, 1_000))
    needed = set[str]()
    monkeypatch.setattr("benchcore.running.retention.list_open_environments", lambda engine: needed)
    engine = open_database(state.database_url)
    for days_ago in (3, 2, 1, 0):
        retention.pass_night(state, engine, retention._plan(days_ago), keep=1)
        needed.update(each.key for each in list_environments(state))
    engine.dispose()
    assert {each.key for each in list_environments(state)} == needed


def test_a_second_year_has_nights_of_its_own(tmp_path: Path) -> None:
    first, second = retention._plan(3), retention._plan(3 + retention.DAYS)
    assert first.plan.campaign != second.plan.campaign and second.at < first.at
    runs = [{duel.duel_run for duel in each.plan.duels} for each in (first, second)]
    assert not runs[0] & runs[1]
    assert len(list(retention.list_documents(second))) == len(second.plan.duels)
    save_plan(second.plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").duels == second.plan.duels
