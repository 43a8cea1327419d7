"""Why a pair is missing: duels without a result are named, and so is what the plan left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dashboard_nights import NIGHTS, name_night
from page_visits import CRASHED

from benchcore.planning.matrix import PlannedDuel
from benchcore.protocol import DuelLimits
from benchcore.state import State
from benchcore.store.database import open_database
from dashboards.website.campaign.duels import list_duels
from dashboards.website.campaign.tonight import describe_campaign
from dashboards.website.campaign.voids import count_causes
from dashboards.website.gather import Campaign, read_campaigns


@pytest.fixture(scope="module")
def night(nights: State) -> Campaign:
    engine = open_database(nights.database_url)
    return next(read_campaigns(nights, engine, [name_night(3)]))


def _plan_duel(duel_run: str, case: str) -> PlannedDuel:
    named: dict[str, Any] = {"hash": duel_run, "duel_run": duel_run, "workload": "mlp"}
    settings: dict[str, Any] = {"track": "default", "device": "cpu", "seed": 1, "contenders": ()}
    limits = DuelLimits()
    return PlannedDuel(**named, **settings, case=case, limits=limits, expected_s=1.0)


def _describe(night: Campaign, **plan: Any) -> tuple[list[Any], dict[str, Any]]:
    """What leads the page, and its sections by their anchors."""
    assert night.plan is not None
    found = describe_campaign(replace(night, plan=replace(night.plan, **plan)), "")
    return found["top"], {each["id"]: each for each in found["blocks"]}


def test_a_planned_duel_without_a_result_is_named(night: Campaign) -> None:
    measured = tuple(_plan_duel(run, "train_b128") for run in night.runs)
    top, sections = _describe(night, duels=measured)
    assert "voids" not in sections and "no result" not in str(top), "all were measured, and count"
    lost = _plan_duel("f" * 16, "infer_b8")
    top, sections = _describe(night, duels=(*measured, lost))
    assert top[-1]["parts"][0] == "1 planned duel has "
    assert top[-1]["parts"][1] == {"text": "no result", "href": "#voids"}
    (table,) = sections["voids"]["blocks"]
    assert [row["duel"] for row in table["rows"]] == [lost.title]


def test_many_notes_of_a_plan_are_folded(night: Campaign) -> None:
    notes = tuple(f"left out: mlp train_b{each} (about 60 s) does not fit" for each in range(4))
    top, _ = _describe(night, notes=notes[:3])
    assert [each["parts"] for each in top[1:]] == [[each] for each in notes[:3]]
    top, _ = _describe(night, notes=notes)
    (folded,) = top[1:]
    assert (folded["kind"], folded["summary"]) == ("details", "4 notes on the plan")
    assert [each["parts"] for each in folded["blocks"]] == [[each] for each in notes]


def test_a_void_pair_shows_why_its_contender_failed(nights: State) -> None:
    engine = open_database(nights.database_url)
    last = next(read_campaigns(nights, engine, [name_night(NIGHTS - 1)]))
    found = describe_campaign(last, "")
    (section,) = (each for each in found["blocks"] if each["id"] == "voids")
    reasons = {row["cause"]: row["reason"] for row in section["blocks"][0]["rows"]}
    failed = "PyTorch 2.15.0 compiled, compile: signal 11"
    assert reasons["a contender crashed"].startswith(failed)
    assert reasons["outputs differ"].startswith("outputs differ: by 4.1e-03")
    (page,) = (page for run, page in list_duels(last) if run == CRASHED)
    assert failed in str(page["blocks"][1]) and "it crashed" not in str(page["blocks"][1])
    cells = [each for each in found["cells"] if each["reason"]]
    assert {each["reason"] for each in cells} <= set(reasons.values())


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("no valid block; 34 of 36 blocks left out as degraded, the first", "no valid block"),
        ("outputs differ: by 4.1e-03 where 1.0e-03 is allowed", "outputs differ"),
        ("start 2 compiled 31 times in timed blocks", "start … compiled … times in timed blocks"),
        ("its blocks take 1,024.5 s or more", "its blocks take … s or more"),
        ("jax-jit-0.12.1 is wrong on purpose: eager", "jax-jit-0.12.1 is wrong on purpose"),
        ("{a}: physics could not be judged: no ceiling", "physics could not be judged"),
        ("word " * 20, f"{'word ' * 15}word\u2026"),
    ],
)
def test_a_cause_is_the_first_clause_of_its_reason(nights: State, reason: str, cause: str) -> None:
    engine = open_database(nights.database_url)
    night = next(read_campaigns(nights, engine, [name_night(3)]))
    run = night.runs[0]
    failed = {"counts": False, "violations": []}
    rows = night.of_duels["ratios"][run]
    void = [{**row, **failed, "reason": reason.format(a=row["a"])} for row in rows]
    ratios = {**night.of_duels["ratios"], run: void}
    found = count_causes(replace(night, of_duels={**night.of_duels, "ratios": ratios}))
    assert dict(found) == {cause: len(void)}
