"""A campaign is published beside what the dashboard has; a new one gets what a minute allows."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from result_documents import make_document
from stored_histories import store_history

from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns, list_newest_campaigns
from benchcore.store.reports.changes import list_changes
from dashboards import publish
from dashboards.publish import find_newest_night
from dashboards.website.campaign.news import write_verdict
from dashboards.website.files import WebsiteFiles


def test_a_new_site_gets_the_newest_campaigns(
    nights: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MOST_DUELS", 12)
    state = open_state(tmp_path / "state")
    shutil.copy(nights.root / "deadheat.db", state.root / "deadheat.db")
    engine = open_database(state.database_url)
    every = list_campaigns(engine)
    newest = list_newest_campaigns(engine, 12)
    assert newest == every[-len(newest) :] and 1 <= len(newest) < len(every)
    publish.publish_campaign(state, every[0])
    files = WebsiteFiles(state.website)
    names = {each["name"] for each in files.read("catalog")["campaigns"]}
    assert names == {every[0], *newest}
    left = len(every) - len(newest) - 1
    assert f"The database has {left} more campaigns" in str(files.read("pages/runs"))
    assert list_newest_campaigns(engine, 0) == every[-1:]
    engine.dispose()


def test_a_night_is_given_only_the_changes_that_were_opened_in_it(
    nights: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state(tmp_path / "state")
    shutil.copy(nights.root / "deadheat.db", state.root / "deadheat.db")
    shutil.copytree(nights.website, state.website, dirs_exist_ok=True)
    given = list[tuple[datetime, str | None, list[int]]]()

    def record(counts: Any, until: str | None, changes: Any, **more: Any) -> str:
        begun = datetime.fromisoformat(counts["begun"])
        given.append((begun, until, [each["id"] for each in changes]))
        return write_verdict(counts, until, changes, **more)

    monkeypatch.setattr(publish, "write_verdict", record)
    before = [each["verdict"] for each in WebsiteFiles(state.website).read("catalog")["campaigns"]]
    publish.refresh_pages(state)
    after = [each["verdict"] for each in WebsiteFiles(state.website).read("catalog")["campaigns"]]
    assert before == after
    engine = open_database(state.database_url)
    opened = {each["id"]: (each["event"] or each)["opened_at"] for each in list_changes(engine)}
    engine.dispose()
    assert len(given) > 10 and any(ids for *_, ids in given)
    for begun, until, ids in given:
        end = datetime.max.replace(tzinfo=UTC) if until is None else datetime.fromisoformat(until)
        assert ids == [each for each, at in opened.items() if begun <= at < end]


def test_without_a_night_no_page_claims_that_every_pair_counts(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    store_history(engine, state, [make_document(campaign="run-mlp-1")], wrong=[0])
    engine.dispose()
    publish.publish_campaign(state, "run-mlp-1")
    health = str(WebsiteFiles(state.website).read("pages/health"))
    assert "No night has been measured yet" in health
    assert not any(each in health for each in ("Every pair counts", "No check failed"))


@pytest.mark.parametrize(
    ("days", "newest"),
    [
        ((0, 1, 2), 2),
        ((0, 1, 2, 1100), 2),  # a wrong clock
        ((0, 1, 2, 1100, 1101), 2),
        ((0, 1, 2, 14), 14),
        ((-400, -365, -300), -300),  # old nights with gaps
        ((1100, 1101, 1102), 1102),  # a history of later years
        ((0, *range(1100, 1106)), 1105),
        ((), None),
    ],
)
def test_a_night_that_a_wrong_clock_dated_far_ahead_is_not_tonight(
    days: tuple[int, ...], newest: int | None
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    nights = [
        {"name": day, "counts": {"begun": (now + timedelta(days=day)).isoformat()}} for day in days
    ]
    assert find_newest_night(nights, now) == newest


@pytest.mark.parametrize(
    "damaged",
    ["data/catalog.js", "data/versions.js", "index.html", "assets/core.js", "assets/vega.js"],
)
def test_damaged_files_of_the_site_are_made_again(tmp_path: Path, damaged: str) -> None:
    """A night publishes, and goes on to its alerts, whatever a crash left of the dashboard."""
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    store_history(engine, state, [make_document(campaign="run-mlp-1")])
    engine.dispose()
    publish.publish_campaign(state, "run-mlp-1")
    path = state.website / damaged
    before = path.read_bytes()
    path.write_bytes(b"\xff" + before[1 : len(before) // 2])
    publish.publish_campaign(state, "run-mlp-1")
    if damaged == "data/catalog.js":  # it names the minute
        files = WebsiteFiles(state.website)
        assert [each["name"] for each in files.read("catalog")["campaigns"]] == ["run-mlp-1"]
    else:
        assert path.read_bytes() == before
    catalog = WebsiteFiles(state.website).path_of("catalog")
    catalog.write_bytes(b"\xff")
    publish.refresh_pages(state)
    catalog.write_bytes(b"\xff")
    publish.withdraw_campaign(state, "run-mlp-1", None)
    assert WebsiteFiles(state.website).read("catalog")["campaigns"] == []


def test_a_page_with_a_wrong_byte_can_be_restored(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    path = WebsiteFiles(state.website).path_of("campaigns/run-mlp-1")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff")
    before = publish.read_page(state, "run-mlp-1")
    publish.withdraw_campaign(state, "run-mlp-1", before)
    assert publish.read_page(state, "run-mlp-1") == before == "\ufffd"
