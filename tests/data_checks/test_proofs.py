"""No ratio without a proof: what is missing, failed or beyond its bounds marks the pair."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, JAX, OLD_JAX, TORCH, make_document, spool_document

from benchcore.program import Precision
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import read_duels
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from data_checks.check import check_campaign

SUITES = {"pairs", "proofs"}


def _document(*racers: Any, **duel: Any) -> dict[str, Any]:
    """A duel of a case that needs a proof."""
    document = make_document(racers or (JAX, TORCH))
    document["duel"].update({"precision": "fp32_ieee", **duel})
    return document


def _judge(state: State, engine: Engine, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    check_campaign(engine, CAMPAIGN)
    return {ratio["kind"]: ratio for ratio in judge_and_list(engine, CAMPAIGN)}


def test_a_proven_pair_counts(state: State, engine: Engine) -> None:
    document = _document()
    store_proof(state, engine, make_proof(document))
    assert _judge(state, engine, document)["cross_framework"]["counts"]


@pytest.mark.parametrize("precision", get_args(Precision))
def test_an_unproven_pair_gets_no_ratio_until_it_is_proven(
    state: State, engine: Engine, precision: str
) -> None:
    """In this precision: a proof in another is none."""
    document = _document(precision=precision)
    for number, other in enumerate(set(get_args(Precision)) - {precision}):
        store_proof(state, engine, make_proof(_document(precision=other)), f"other-{number}")
    ratio = _judge(state, engine, document)["cross_framework"]
    assert not ratio["counts"]
    assert f"run deadheat equivalence mlp --precision {precision}" in ratio["reason"]
    store_proof(state, engine, make_proof(document))
    assert _judge(state, engine, document)["cross_framework"]["counts"]


def test_a_proof_holds_for_its_own_pair_alone(state: State, engine: Engine) -> None:
    document = _document(JAX, OLD_JAX, TORCH)
    store_proof(state, engine, make_proof(_document(JAX, TORCH)))
    ratios = _judge(state, engine, document)
    assert not ratios["cross_version"]["counts"]
    store_proof(state, engine, make_proof(document), "all")
    assert _judge(state, engine, document)["cross_version"]["counts"]


def test_an_environment_compared_with_itself_needs_no_proof(state: State, engine: Engine) -> None:
    twin = make_document((JAX, TORCH))["contenders"][0]
    document = _document()
    document["contenders"] = [twin, {**twin, "name": "twin"}]
    document["equivalence"][0]["b"] = "twin"
    assert _judge(state, engine, document)["cross_setting"]["counts"]


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        ({"passed": False, "reason": "not the same function"}, "proven equal"),
        ({"reference_error": 1e-4}, "reference within bound"),
        ({"a_error": 1e-3}, "a within bound"),
        ({"b_error": 2e-6}, "b within bound"),
        ({"b_error": None}, "b within bound"),
        ({"reference_bound": None}, "reference within bound"),
    ],
    ids=str,
)
def test_a_row_that_fails_or_only_claims_to_pass_fails_its_check_and_voids_the_pair(
    state: State, engine: Engine, wrong: dict[str, Any], check: str
) -> None:
    document = _document()
    store_proof(state, engine, make_proof(document, **wrong))
    ratio = _judge(state, engine, document)["cross_framework"]
    assert not ratio["counts"]
    assert "not proven" in ratio["reason"] or "not within its bound" in ratio["reason"]
    [record] = read_duels(engine, CAMPAIGN)
    assert [each.expectation for each in record.failed_checks] == [check]


def test_a_workload_without_outputs_needs_no_proof(state: State, engine: Engine) -> None:
    assert _judge(state, engine, _document(workload="matmul"))["cross_framework"]["counts"]


@pytest.mark.parametrize(
    ("duel", "proof", "advice"),
    [
        ("c" * 64, None, "run deadheat equivalence mlp --precision fp32_ieee --checkpoint FILE"),
        (
            "c" * 64,
            "d" * 64,
            "run deadheat equivalence mlp --precision fp32_ieee --checkpoint FILE",
        ),
        (None, "c" * 64, "run deadheat equivalence mlp --precision fp32_ieee; "),
    ],
)
def test_a_proof_with_other_weights_does_not_hold_for_a_checkpoint(
    state: State, engine: Engine, duel: str | None, proof: str | None, advice: str
) -> None:
    document = _document()
    if duel is not None:
        document["duel"].update(checkpoint=duel, case=f"tiny+{duel[:12]}")
    store_proof(state, engine, {**make_proof(document), "checkpoint": proof})
    ratio = _judge(state, engine, document)["cross_framework"]
    assert not ratio["counts"]
    assert advice in f"{ratio['reason']}; "
    store_proof(state, engine, {**make_proof(document), "checkpoint": duel}, "same")
    assert _judge(state, engine, document)["cross_framework"]["counts"]
