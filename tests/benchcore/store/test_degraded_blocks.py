"""Degraded blocks are kept, and left out of ratios."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.frames import contender_frame
from benchcore.store.ingest import ingest_spool
from benchcore.store.judging import judge_campaign
from benchcore.store.queries import replace_marks
from benchcore.verdict.ratios import Ratio


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
    replace_marks(engine, CAMPAIGN, [])
    (ratio,) = judge_campaign(engine, CAMPAIGN)
    return ratio


def test_a_start_is_judged_by_its_undisturbed_blocks(engine: Engine, state: State) -> None:
    ratio = judge(engine, state, {0, 2})
    assert ratio.log_ratio == pytest.approx(0.0, abs=1e-6)
    assert (ratio.num_starts, ratio.counts, ratio.verdict) == (3, True, "same")
    assert ratio.reason.endswith(
        "6 of 24 blocks left out as degraded, the first because "
        "30% CPU time was stolen (at most 5%)"
    )
    assert list(contender_frame(engine, CAMPAIGN)["num_blocks"]) == [12, 12]  # kept


def test_a_duel_without_a_valid_block_is_unknown_and_says_so(engine: Engine, state: State) -> None:
    ratio = judge(engine, state, range(4))
    assert (ratio.verdict, ratio.counts, ratio.log_ratio) == ("unknown", False, None)
    assert ratio.reason.startswith("no valid block; 12 of 24 blocks left out as degraded")


def test_an_undisturbed_duel_says_nothing_of_it(engine: Engine, state: State) -> None:
    ratio = judge(engine, state, ())
    assert "degraded" not in ratio.reason
    assert ratio.num_starts == 3
