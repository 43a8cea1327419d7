"""Degraded blocks are kept, and left out of ratios."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from result_documents import CAMPAIGN, make_document, spool_document
from sqlalchemy import update
from sqlalchemy.orm import Session

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.frames.contenders import contender_frame, run_frames
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import StartRun
from benchcore.verdict.duel.ratios import Ratio
from data_checks.check import check_campaign


def judge(engine: Engine, state: State, disturbed: Collection[int]) -> Ratio:
    """JAX's steps take three times as long in disturbed rounds: 30 % of the time was stolen."""
    document = make_document()
    for start in document["contenders"][0]["starts"]:
        for block in start["blocks"]:
            if block["round"] in disturbed:
                block["telemetry"]["steal_share"] = 0.3
                block["elapsed_ns"] *= 3
    spool_document(state.spool, document)
    assert ingest_spool(engine, state).rejected == ()
    replace_failed_checks(engine, CAMPAIGN, [])
    (ratio,) = judge_campaign(engine, CAMPAIGN)
    return ratio


def test_a_start_is_judged_by_its_valid_blocks(engine: Engine, state: State) -> None:
    ratio = judge(engine, state, {0, 2})
    assert ratio.log_ratio == pytest.approx(0.0, abs=1e-6)
    assert (ratio.num_starts, ratio.counts, ratio.verdict) == (3, True, "same")
    assert ratio.reason.endswith(
        "6 of 24 blocks left out as degraded, the first because "
        "30 % CPU time was stolen (at most 5 %)"
    )
    frame = contender_frame(engine, CAMPAIGN)
    assert list(frame["num_blocks"]) == [12, 12]  # kept
    assert list(frame["num_degraded"]) == [6, 0]
    assert list(run_frames(engine, CAMPAIGN)[1]["num_degraded"]) == [2, 2, 2, 0, 0, 0]


def test_the_time_of_a_step_comes_from_its_valid_blocks(engine: Engine, state: State) -> None:
    """Three of four blocks took three times as long, and were disturbed."""
    judge(engine, state, {0, 1, 2})
    jax, torch = contender_frame(engine, CAMPAIGN)["median_step_ns"]
    assert jax == pytest.approx(torch, rel=0.01)


def test_a_start_without_valid_blocks_voids_no_other_start(engine: Engine, state: State) -> None:
    document = make_document()
    for block in document["contenders"][0]["starts"][1]["blocks"]:
        block["telemetry"]["steal_share"] = 0.3
    spool_document(state.spool, document)
    assert ingest_spool(engine, state).rejected == ()
    assert check_campaign(engine, CAMPAIGN).failed_checks == ()
    (ratio,) = judge_campaign(engine, CAMPAIGN)
    assert (ratio.num_starts, ratio.counts) == (2, True)


def test_a_start_without_time_or_disturbance_fails_its_check(engine: Engine, state: State) -> None:
    spool_document(state.spool, make_document())
    ingest_spool(engine, state)
    with Session(engine) as session:
        session.execute(update(StartRun).values(median_step_ns=None))
        session.commit()
    marks = check_campaign(engine, CAMPAIGN).failed_checks
    assert {mark.expectation for mark in marks} == {"timed"}


def test_a_duel_without_a_valid_block_is_unknown_with_a_reason(
    engine: Engine, state: State
) -> None:
    ratio = judge(engine, state, range(4))
    assert (ratio.verdict, ratio.counts, ratio.log_ratio) == ("unknown", False, None)
    assert ratio.reason.startswith("no valid block; 12 of 24 blocks left out as degraded")


def test_a_duel_without_degraded_blocks_has_no_note(engine: Engine, state: State) -> None:
    ratio = judge(engine, state, ())
    assert "degraded" not in ratio.reason
    assert ratio.num_starts == 3
