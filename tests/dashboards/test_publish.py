"""A site of several campaigns: its first page, and links that lead to files that are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from defect_documents import CAMPAIGN as STUDY
from defect_documents import make_study
from kept_histories import open_history
from result_documents import make_document, make_history, make_plan, spool_document

from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.ingest import ingest_spool
from dashboards.publish import publish_campaign


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state")


def _plan(state: State, campaign: str) -> None:
    save_plan(make_plan(campaign), campaign_folder(state, campaign) / "plan.json")


def _publish(state: State, document: Mapping[str, Any], *others: str) -> Path:
    """Take a document in and publish its campaign, which has these other pages by then."""
    campaign = document["campaign"]
    spool_document(state.spool, dict(document))
    assert not ingest_spool(open_database(state.database_url), state).rejected
    _plan(state, campaign)
    for name in others:
        (state.site / campaign).mkdir(parents=True, exist_ok=True)
        (state.site / campaign / name).write_text("a page")
    return publish_campaign(state, campaign)


def _campaign(name: str, number: int, *, epochs: bool = False) -> dict[str, Any]:
    document = make_document(campaign=name, duel_run=f"{number:016x}", rounds=2)
    for key, hour in (("started_at", 1), ("ended_at", 2)):
        document["allocation"][key] = f"2026-11-2{number}T0{hour}:00:00+00:00"
    if not epochs:
        return document
    images = {"num_classes": 2, "num_train": 8, "num_val": 2, "mode": "end-to-end", "workers": 1}
    document["duel"]["dataset"] = {"name": "pets", "sha256": "a" * 64, **images}
    for start in (start for each in document["contenders"] for start in each["starts"]):
        start["epochs"] = [
            {"epoch": epoch, "wait_ns": 1, "loss": 1.5, "correct": 1, "validation_ns": 1}
            | {"gross_mj": None}
            for epoch in range(2)
        ]
    return document


def _linked(page: Path) -> set[str]:
    """Where the page's links to other files lead, from the site's folder."""
    site = next(folder for folder in page.parents if folder.name == "site")
    hrefs = re.findall(r'<a href="([^"#:]+)"', page.read_text(encoding="utf-8"))
    targets = [(page.parent / href).resolve() for href in hrefs]
    assert all(target.is_file() for target in targets)
    return {str(target.relative_to(site.resolve())) for target in targets}


def test_every_page_of_a_site_is_linked_from_its_first_page(state: State) -> None:
    _publish(state, make_study(), "defects.html")
    assert not (state.site / "index.html").exists()
    training = _publish(state, _campaign("train", 2, epochs=True))
    waterfall = _publish(state, _campaign("fall", 3), "waterfall.html")
    assert waterfall == state.site / "index.html"
    everything = {f"{STUDY}/defects.html", "train/index.html", "fall/waterfall.html"}
    assert _linked(waterfall) == everything
    assert _linked(state.site / "fall" / "index.html") == everything
    assert training == state.site / "index.html"
    publish_campaign(state, "train")
    assert _linked(state.site / "train" / "index.html") == everything - {"train/index.html"}


def test_the_first_page_is_of_the_newest_campaign_that_was_published(state: State) -> None:
    newest = _publish(state, _campaign("newer", 3))
    assert newest == state.site / "index.html"
    spool_document(state.spool, _campaign("unpublished", 4))
    older = _publish(state, _campaign("older", 2), "waterfall.html")
    assert older == state.site / "older" / "index.html"
    assert "<title>Dead Heat: newer</title>" in newest.read_text(encoding="utf-8")
    assert _linked(newest) == {"older/waterfall.html"}


def test_a_first_page_whose_plan_cannot_be_read_stays_as_it_is(state: State) -> None:
    newest = _publish(state, _campaign("newer", 3))
    before = newest.read_text(encoding="utf-8")
    (campaign_folder(state, "newer") / "plan.json").write_text("{}")
    older = _publish(state, _campaign("older", 2), "waterfall.html")
    assert _linked(older) == {"older/waterfall.html"}
    assert newest.read_text(encoding="utf-8") == before


def test_of_two_pages_of_one_kind_and_case_the_newer_is_linked(state: State) -> None:
    for name, number in (("second", 3), ("first", 2)):
        _publish(state, _campaign(name, number), "waterfall.html")
    assert _linked(state.site / "index.html") == {"second/waterfall.html"}


def test_a_page_lists_series_that_alternate_between_two_levels(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    rng = np.random.default_rng(4)
    logs = rng.normal(0.2, 0.005, 24) + 0.05 * (rng.random(24) < 0.4)
    open_history(state, make_history(logs.tolist())).dispose()
    _plan(state, "history")
    page = publish_campaign(state, "history").read_text(encoding="utf-8")
    assert "torch-compile: nights alternate between two levels" in page
