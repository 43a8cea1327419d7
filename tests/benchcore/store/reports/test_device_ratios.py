"""What holds for a device model: nodes are the samples, and each must have measured the same."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import list_device_ratios
from benchcore.verdict.starts import judge_nodes
from data_checks.check import check_campaign

SUITES = {"equivalence"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Night:
    """One duel run on a node, in which torch takes `factor` times the usual."""

    duel_run: str
    node: str
    campaign: str = CAMPAIGN
    factor: float = 1.0
    hash: str | None = None
    fingerprint: str | None = None
    day: int = 1
    wrong: bool = False


def _list(state: State, engine: Engine, *nights: Night) -> list[dict[str, Any]]:
    for night in nights:
        document = make_document(
            duel_run=night.duel_run, campaign=night.campaign, agrees=not night.wrong
        )
        allocation = document["allocation"]
        allocation["node"] = night.node
        for key, hour in (("started_at", 1), ("ended_at", 2)):
            allocation[key] = f"2026-02-0{night.day}T0{hour}:00:00+00:00"
        allocation["device"]["fingerprint"] = night.fingerprint or "f" * 16
        document["duel"]["hash"] = night.hash or document["duel"]["hash"]
        for start in document["contenders"][1]["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] = round(block["elapsed_ns"] * night.factor)
        spool_document(state.spool, document)
        store_proof(state, engine, make_proof(document), night.duel_run)
    assert ingest_spool(engine, state).rejected == ()
    for campaign in {night.campaign for night in nights}:
        check_campaign(engine, campaign)
        judge_campaign(engine, campaign)
    return list_device_ratios(engine, CAMPAIGN)


ONE, TWO, THREE = "1" * 16, "2" * 16, "3" * 16


def test_a_finding_on_two_nodes_holds_for_their_model_with_one_sample_per_node(
    state: State, engine: Engine
) -> None:
    (found,) = _list(
        state,
        engine,
        Night(duel_run=ONE, node="a", factor=2.0),
        Night(duel_run=TWO, node="b", factor=2.2, campaign="of-b"),
    )
    assert (found["scope"], found["num_nodes"]) == ("this device model", 2)
    assert found["speedup"] == pytest.approx(math.sqrt(2.0 * 2.2), rel=0.01)
    # Student's t of two samples: 12.7 standard errors either way, however many starts there were.
    assert found["verdict"] == "different"
    half = math.log(found["high"] / found["low"]) / 2
    assert half == pytest.approx(12.706 * math.log(1.1) / 2, rel=0.02)


@pytest.mark.parametrize(
    "other",
    [
        Night(duel_run=TWO, node="a"),
        Night(duel_run=TWO, node="b", hash="9" * 16),
        Night(duel_run=TWO, node="b", fingerprint="9" * 16),
        Night(duel_run=TWO, node="b", wrong=True),
    ],
    ids=["the same node", "another duel", "another device", "what does not count"],
)
def test_only_another_host_counts_as_a_second_node(
    state: State, engine: Engine, other: Night
) -> None:
    assert _list(state, engine, Night(duel_run=ONE, node="a"), other) == []


def test_only_the_newest_run_of_a_node_counts(state: State, engine: Engine) -> None:
    (found,) = _list(
        state,
        engine,
        Night(duel_run=ONE, node="a", factor=9.0, campaign="old", day=1),
        Night(duel_run=TWO, node="a", factor=2.0, day=2),
        Night(duel_run=THREE, node="b", factor=2.0, day=1),
    )
    assert found["num_nodes"] == 2
    assert found["speedup"] == pytest.approx(2.0, rel=0.01)


def test_a_campaign_makes_no_finding_for_a_model_it_did_not_run_on(
    state: State, engine: Engine
) -> None:
    nights = [
        Night(duel_run=ONE, node="a", campaign="other"),
        Night(duel_run=TWO, node="b", campaign="other"),
    ]
    assert _list(state, engine, *nights) == []


def test_one_node_makes_no_finding_for_its_model() -> None:
    with pytest.raises(ValueError, match="at least two nodes, got 1"):
        judge_nodes([0.3])
