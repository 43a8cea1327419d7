"""A campaign in which nothing counts says why, and what others disturbed is measured again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    JAX,
    OLD_JAX,
    TORCH,
    make_document,
    make_plan,
    spool_document,
)
from stored_histories import add_suspicion, store_history

from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import DuelLimits
from benchcore.running.disturbances import restore_better_documents, set_aside_void
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.void import explain_void, list_disturbed, list_void

QUIET, BUSY = f"{1:016x}", f"{2:016x}"


def _disturb(document: dict[str, Any], *shares: float) -> dict[str, Any]:
    """The document with these shares of the CPUs used by others, one per contender."""
    for contender, share in zip(document["contenders"], shares, strict=True):
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["telemetry"]["foreign_cpu_share"] = share
    return document


def test_a_busy_machine_is_named_with_the_shares_that_others_used(
    engine: Engine, state: State
) -> None:
    busy = _disturb(make_document(duel_run=BUSY), 0.38, 0.62)
    store_history(engine, state, [busy])
    text = "Nothing counts: the machine was busy. Other processes used 38 to 62 % of its CPUs."
    assert explain_void(engine, CAMPAIGN) == text
    assert list_disturbed(engine, CAMPAIGN) == [BUSY]
    store_history(engine, state, [make_document(duel_run=QUIET)])
    assert explain_void(engine, CAMPAIGN) is None
    assert list_void(engine, [CAMPAIGN]) == {}
    assert list_disturbed(engine, CAMPAIGN) == [BUSY]


def test_one_disturbed_side_is_not_measured_again_while_rounds_remain(
    engine: Engine, state: State
) -> None:
    document = make_document(duel_run=QUIET)
    document["contenders"][0]["starts"][0]["blocks"][0]["telemetry"]["foreign_cpu_share"] = 0.9
    store_history(engine, state, [document])
    assert list_disturbed(engine, CAMPAIGN) == []
    assert explain_void(engine, CAMPAIGN) is None


def test_another_reason_is_given_and_is_no_reason_to_measure_again(
    engine: Engine, state: State
) -> None:
    store_history(engine, state, [make_document(duel_run=QUIET)], wrong=[0])
    text = explain_void(engine, CAMPAIGN)
    assert text is not None and text.startswith("Nothing counts: in 1 of 1 pairs ")
    assert list_void(engine, [CAMPAIGN]) == {CAMPAIGN: text}
    assert list_disturbed(engine, CAMPAIGN) == []


def test_contenders_that_are_all_unsupported_measured_nothing(engine: Engine, state: State) -> None:
    racers = [replace(each, status="unsupported") for each in (JAX, TORCH)]
    store_history(engine, state, [make_document(racers, duel_run=QUIET)])
    text = explain_void(engine, CAMPAIGN)
    assert text is not None and "no contender ran (2 unsupported)" in text


@pytest.mark.parametrize("workload", ["matmul", "noop"])
def test_an_unsupported_contender_is_the_reason_although_the_machine_was_measured(
    engine: Engine, state: State, workload: str
) -> None:
    alone = make_document([replace(JAX, status="unsupported")], duel_run=QUIET)
    machine = make_document([TORCH], duel_run=BUSY)
    machine["duel"]["workload"] = workload
    store_history(engine, state, [alone, machine])
    text = explain_void(engine, CAMPAIGN)
    assert text is not None and "no contender ran (1 unsupported): it broke" in text
    assert list_void(engine, [CAMPAIGN, "another"]) == {CAMPAIGN: text}


def test_a_campaign_that_only_measures_the_machine_is_not_void(
    engine: Engine, state: State
) -> None:
    document = make_document([TORCH], duel_run=QUIET)
    document["duel"]["workload"] = "noop"
    store_history(engine, state, [document])
    assert explain_void(engine, CAMPAIGN) is None


@pytest.fixture
def plan() -> Plan:
    return replace(make_plan(CAMPAIGN), duels=(_plan_duel(BUSY),))


def _disturb_torch(engine: Engine, state: State, *shares: float) -> dict[str, Any]:
    """A duel of JAX, the JAX before it, and torch, with these shares used by others."""
    document = _disturb(make_document((JAX, OLD_JAX, TORCH), duel_run=BUSY), *shares)
    store_history(engine, state, [document])
    return document


def test_a_void_pair_is_measured_again_and_what_counts_is_kept(
    engine: Engine, state: State, plan: Plan
) -> None:
    first = _disturb_torch(engine, state, 0.0, 0.0, 0.9)
    assert list_disturbed(engine, CAMPAIGN) == [BUSY]
    (aside,) = set_aside_void(state, plan)
    assert aside.duel.title == "mlp tiny"
    restored = restore_better_documents(state, plan)
    assert restored == ["mlp tiny"], "it was not measured again"
    assert ingest_spool(engine, state).ingested == (BUSY,)

    (aside,) = set_aside_void(state, plan)
    _disturb_torch(engine, state, 0.0, 0.9, 0.0)
    restored = restore_better_documents(state, plan)
    assert restored == ["mlp tiny"], "another pair counted before"
    assert ingest_spool(engine, state).ingested == (BUSY,)
    path = state.spool / CAMPAIGN / f"{BUSY}.json"
    assert json.loads(path.read_text()) == first

    (aside,) = set_aside_void(state, plan)
    _disturb_torch(engine, state, 0.0, 0.0, 0.0)
    assert restore_better_documents(state, plan) == []
    assert list_disturbed(engine, CAMPAIGN) == []


def test_a_duel_that_a_suspicion_rests_on_is_not_measured_again(
    engine: Engine, state: State
) -> None:
    _disturb_torch(engine, state, 0.0, 0.0, 0.9)
    add_suspicion(engine, BUSY)
    assert list_disturbed(engine, CAMPAIGN) == []


def test_only_what_others_disturbed_is_set_aside(engine: Engine, state: State) -> None:
    documents = [make_document(duel_run=QUIET), _disturb(make_document(duel_run=BUSY), 0.5, 0.5)]
    duels = tuple(_plan_duel(each["duel_run"]) for each in documents)
    plan = replace(make_plan(CAMPAIGN), duels=duels)
    store_history(engine, state, documents)
    for each in documents:
        spool_document(state.spool, each)
    (aside,) = set_aside_void(state, plan)
    assert aside.duel.title == "mlp tiny"
    folder = state.spool / CAMPAIGN
    assert [each.stem for each in folder.glob("*.json")] == [QUIET]
    assert (folder / "void" / f"{BUSY}.1.json").exists()
    assert ingest_spool(engine, state).ingested == ()
    assert set_aside_void(state, plan) == []
    spool_document(state.spool, documents[1])  # measured again
    assert ingest_spool(engine, state).ingested == (BUSY,)
    assert restore_better_documents(state, plan) == []
    set_aside_void(state, plan)
    assert restore_better_documents(state, plan) == ["mlp tiny"], "it was not measured again"
    assert ingest_spool(engine, state).ingested == (BUSY,)


def _plan_duel(duel_run: str) -> PlannedDuel:
    return PlannedDuel(
        hash=duel_run,
        duel_run=duel_run,
        workload="mlp",
        case="tiny",
        track="default",
        device="cpu",
        seed=1,
        limits=DuelLimits(),
        expected_s=1.0,
        contenders=(),
    )
