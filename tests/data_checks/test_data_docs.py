"""Data Docs name what failed, open without a network, and run nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import Environment
from result_documents import CAMPAIGN, JAX, TORCH, make_document
from stored_histories import store_history

from benchcore.state import open_state
from benchcore.store.database import open_database
from dashboards.website.gather import read_campaigns
from dashboards.website.health import link_suite
from data_checks.check import check_campaign
from data_checks.data_docs import close_page, name_page

HOSTILE = "<script>alert(1)</script>"


def test_each_suite_has_a_page_that_the_site_links(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    document = make_document([replace(JAX, status="crash"), TORCH])
    document["contenders"][0]["failure"] |= {"reason": HOSTILE}
    store_history(engine, state, [document])
    docs = state.data_docs(CAMPAIGN)
    docs.mkdir(parents=True)
    (docs / "an earlier suite.html").write_text("old")
    report = check_campaign(engine, CAMPAIGN, docs)
    failed = {each.suite for each in report.failed_checks}
    assert failed
    pages = {path.stem: path.read_text() for path in docs.iterdir()}
    assert {name_page(each) for each in failed} < set(pages) and "an earlier suite" not in pages
    for name, page in pages.items():
        assert "default-src 'none'" in page, name
        for fetched in ("<script", "<link", "<img", "http://", "https://cdn", "unpkg"):
            assert fetched not in page, (name, fetched)
    assert "No step is faster than the device can be, by" in pages["nightly-physics"]
    assert "Failed" in pages["nightly-contenders"] and "failed" in pages["index"]
    assert "nightly-epochs" not in pages, "no row of it"
    assert "<td>nightly epochs</td><td>no rows</td>" in pages["index"]

    (campaign,) = read_campaigns(state, engine, [CAMPAIGN])
    assert campaign.docs == set(pages)
    cell = link_suite(CAMPAIGN, "nightly contenders", campaign.docs)
    assert isinstance(cell, dict) and (state.website / cell["href"]).is_file()
    assert link_suite(CAMPAIGN, "telemetry", campaign.docs) == "telemetry"
    engine.dispose()


def test_templates_are_compiled_once_for_all_campaigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are nine tenths of the time of a page."""
    state = open_state(tmp_path)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    store_history(engine, state, [make_document([JAX, TORCH])])
    check_campaign(engine, CAMPAIGN, state.data_docs(CAMPAIGN))
    before = {path.name for path in state.data_docs(CAMPAIGN).iterdir()}
    monkeypatch.setattr(Environment, "compile", None)
    check_campaign(engine, CAMPAIGN, state.data_docs(CAMPAIGN))
    assert {path.name for path in state.data_docs(CAMPAIGN).iterdir()} == before
    engine.dispose()


def test_what_a_page_would_fetch_is_removed_and_forbidden() -> None:
    page = close_page(f'<head></head><link href="https://x/y.css">{HOSTILE}<img src="https://x">')
    assert "https://x" not in page and "alert" not in page and "default-src 'none'" in page
    assert "onclick" not in close_page('<p onclick="run()">')
    assert close_page('<a href="../../index.html">') == '<a href="index.html">'
