"""The histories of the Series page hold every metric that a suspicion can be about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from proof_documents import keep_proof, make_proof
from result_documents import CAMPAIGN, JAX, TORCH, make_document, make_plan
from stored_histories import open_history

from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import open_state
from benchcore.store.metrics import TRACKED
from dashboards.publish import publish_campaign
from dashboards.site.files import SiteFiles


def test_an_error_against_float64_has_a_history(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    document = make_document((JAX, replace(TORCH, arm="torch-eager")))
    engine = open_history(state, [document])
    keep_proof(state, engine, make_proof(document, a_error=2e-7, b_error=4e-7))
    engine.dispose()
    save_plan(make_plan(CAMPAIGN), campaign_folder(state, CAMPAIGN) / "plan.json")
    publish_campaign(state, CAMPAIGN)
    files = SiteFiles(state.site)
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
    (case,) = SiteFiles(state.site).read("catalog")["cases"]
    path = SiteFiles(state.site).path_of(f"history/{case['key']}/2026-01")
    before = path.read_text(encoding="utf-8")
    path.unlink()
    publish_campaign(state, CAMPAIGN)
    assert path.read_text(encoding="utf-8") == before
