"""The histories of the Series page hold every metric that a suspicion can be about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from page_visits import Visit
from playwright.sync_api import Browser
from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, JAX, TORCH, make_document, make_plan
from stored_histories import open_history, store_history

from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.metrics import TRACKED
from dashboards.publish import publish_campaign
from dashboards.website.files import WebsiteFiles


def test_an_error_against_float64_has_a_history(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    document = make_document((JAX, replace(TORCH, arm="torch-eager")))
    engine = open_history(state, [document])
    store_proof(state, engine, make_proof(document, a_error=2e-7, b_error=4e-7))
    engine.dispose()
    save_plan(make_plan(CAMPAIGN), campaign_folder(state, CAMPAIGN) / "plan.json")
    publish_campaign(state, CAMPAIGN)
    files = WebsiteFiles(state.website)
    catalog = files.read("catalog")
    assert [each["key"] for each in catalog["metrics"]] == list(TRACKED)
    (case,) = catalog["cases"]
    found = files.read(f"history/{case['key']}/2026-01")
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    (row,) = [each for each in rows if each["metric"] == "logits_error"]
    assert (row["a_value"], row["b_value"]) == (2e-7, 4e-7)
    assert row["log"] == pytest.approx(0.69315)


def test_a_campaign_is_published_again_after_its_history_was_not_written(tmp_path: Path) -> None:
    """The catalogue is written before the histories that it names."""
    state = open_state(tmp_path)
    open_history(state, [make_document()]).dispose()
    save_plan(make_plan(CAMPAIGN), campaign_folder(state, CAMPAIGN) / "plan.json")
    publish_campaign(state, CAMPAIGN)
    (case,) = WebsiteFiles(state.website).read("catalog")["cases"]
    path = WebsiteFiles(state.website).path_of(f"history/{case['key']}/2026-01")
    before = path.read_text(encoding="utf-8")
    path.unlink()
    publish_campaign(state, CAMPAIGN)
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.browser
def test_a_series_names_the_night_whose_passes_it_holds(browser: Browser, tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    at = "2026-01-02T03:04:05+00:00"
    for day, name in enumerate(("nightly-first", "nightly-later"), start=2):
        document = make_document(campaign=name, duel_run=f"{day:016x}")
        for key in ("started_at", "ended_at"):
            document["allocation"][key] = document["allocation"][key].replace("-02T", f"-0{day}T")
        if name == "nightly-later":
            document["duel"]["passes_of"] = {
                "duel_run": f"{2:016x}",
                "campaign": "nightly-first",
                "at": at,
            }
            for contender in document["contenders"]:
                for start in contender["starts"]:
                    start["memory"] = dict.fromkeys(start["memory"])
        store_history(engine, state, [document])
        save_plan(make_plan(name), campaign_folder(state, name) / "plan.json")
        publish_campaign(state, name)
    engine.dispose()
    catalog = WebsiteFiles(state.website).read("catalog")
    of_pass = {each["key"] for each in catalog["metrics"] if each["of_pass"]}
    assert "process_peak_bytes" in of_pass and "median_step_ns" not in of_pass
    visit = Visit(browser)
    address = f"series.html#case={catalog['cases'][0]['key']}&metric="
    page = visit.open(state.website, f"{address}process_peak_bytes", 1)
    assert page.locator("tbody tr").count() == 2
    note = page.locator("main p.note").inner_text()
    assert note.endswith(
        "The newest night holds the pass of nightly-first; 1 of 2 nights hold an earlier one."
    )
    page = visit.open(state.website, f"{address}median_step_ns", 1)
    assert page.locator("main p.note").count() == 0
    visit.context.close()
