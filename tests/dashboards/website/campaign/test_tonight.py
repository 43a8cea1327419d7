"""A campaign's page: verdicts in the colour of what they mean, and no word twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dashboard_nights import NIGHTS, name_night

from benchcore.state import State
from benchcore.store.database import open_database
from dashboards.website.campaign.news import write_run_headline
from dashboards.website.campaign.tonight import describe_campaign, list_pairs
from dashboards.website.gather import Campaign, read_campaigns


@pytest.fixture(scope="module")
def night(nights: State) -> Campaign:
    engine = open_database(nights.database_url)
    return next(read_campaigns(nights, engine, [name_night(NIGHTS - 1)]))


def _pair(night: Campaign, kind: str) -> dict[str, Any]:
    return next(row for row in night.rows("ratios") if row["kind"] == kind and row["counts"])


@pytest.mark.parametrize(
    ("kind", "log_ratio", "text", "tone"),
    [
        ("cross_version", -0.06, "older faster", "bad"),
        ("cross_version", 0.06, "newer faster", "good"),
        ("cross_framework", -0.06, "PyTorch faster", "good"),
    ],
)
def test_only_a_newer_version_that_is_slower_is_red(
    night: Campaign, kind: str, log_ratio: float, text: str, tone: str
) -> None:
    found = {"log_ratio": log_ratio, "low": log_ratio - 0.01, "high": log_ratio + 0.01}
    row = {**_pair(night, kind), **found, "verdict": "different"}
    table = list_pairs("pairs", [row])
    assert table is not None
    assert table["rows"][0]["verdict"] == {"text": text, "badge": tone}


def test_an_unknown_verdict_has_its_cause_without_the_count_of_blocks(night: Campaign) -> None:
    why = "95 % interval ±7.2 % is too wide; 4 of 48 blocks left out as degraded"
    row = {**_pair(night, "cross_version"), "verdict": "unknown", "reason": why}
    table = list_pairs("pairs", [row])
    assert table is not None
    assert table["rows"][0]["verdict"]["note"] == "95 % interval ±7.2 % is too wide"


def test_how_it_was_measured_has_each_term_once(night: Campaign) -> None:
    (facts,) = (each for each in describe_campaign(night, "")["blocks"] if each["id"] == "facts")
    terms = [term for term, _ in facts["blocks"][0]["pairs"]]
    assert len(set(terms)) == len(terms) and "Node" not in terms, "Where names it"


def test_the_top_names_all_versions_of_a_framework_that_has_no_newest_one(night: Campaign) -> None:
    rows = {
        run: [{**row, "role": "pinned"} if row["framework"] == "jax" else row for row in contenders]
        for run, contenders in night.of_duels["contenders"].items()
    }
    older = replace(night, of_duels={**night.of_duels, "contenders": rows})
    text = str(describe_campaign(older, "")["top"][0]["parts"][0])
    assert text.startswith("JAX 0.12.0 to 0.12.1, PyTorch 2.15.0 on ")
    text = str(describe_campaign(night, "")["top"][0]["parts"][0])
    assert text.startswith("JAX 0.12.1, PyTorch 2.15.0 on ")


def test_a_ceiling_of_the_device_leads_no_headline_of_a_run(night: Campaign) -> None:
    setting = {**_pair(night, "cross_version"), "kind": "cross_setting"}
    ceiling = {**_pair(night, "cross_framework"), "workload": "copy", "case_name": "cpu_256m"}
    words = {"use_case": "op", "batch": 1}
    assert "MLP" in write_run_headline([ceiling | words, setting])
    assert "Memory copy" in write_run_headline([ceiling | words]), "nothing else was measured"
