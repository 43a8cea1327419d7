"""Each ratio reports whether both sides had the same settings, and the differences."""

from __future__ import annotations

from typing import Any

import pytest
from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import list_contenders, list_ratios


def _ratio(engine: Engine, state: State, **changes: str) -> dict[str, Any]:
    document = make_document()
    document["contenders"][1]["effective"]["manifest"].update(changes)
    return _judge(engine, state, document)


def _judge(engine: Engine, state: State, document: dict[str, Any]) -> dict[str, Any]:
    spool_document(state.spool, document)
    assert ingest_spool(engine, state).rejected == ()
    judge_campaign(engine, CAMPAIGN)
    (row,) = ratio_frame(engine, CAMPAIGN).to_dict("records")
    return row


@pytest.mark.parametrize(
    ("changes", "fair", "differences", "num_violations"),
    [
        ({}, True, [], 0),
        ({"layout": "NCHW"}, True, [["layout", "none", "NCHW"]], 0),
        ({"threads": "1"}, False, [["threads", "2", "1"]], 1),
        ({"compiled": "no"}, False, [["compiled", "yes", "no"]], 1),
    ],
)
def test_a_ratio_carries_what_differs_between_its_sides(
    engine: Engine,
    state: State,
    changes: dict[str, str],
    fair: bool,
    differences: list[list[str]],
    num_violations: int,
) -> None:
    row = _ratio(engine, state, **changes)
    assert row["differences"] == differences
    assert (row["fair"], len(row["violations"])) == (fair, num_violations)
    (listed,) = list_ratios(engine, CAMPAIGN)
    assert (listed["fair"], listed["differences"]) == (fair, differences)


def test_sides_without_a_manifest_are_not_called_fair(engine: Engine, state: State) -> None:
    document = make_document()
    del document["contenders"][1]["effective"]["manifest"]
    row = _judge(engine, state, document)
    assert (row["fair"], row["differences"], row["violations"]) == (None, [], [])


def test_contenders_are_listed_with_their_costs_and_none_if_unmeasured(
    engine: Engine, state: State
) -> None:
    document = make_document(starts=1)
    (start,) = document["contenders"][0]["starts"]
    start["latency_ns"] = list(range(1000, 1250))
    start["memory"]["process_baseline_bytes"] = 500_000
    _judge(engine, state, document)
    jax, torch = list_contenders(engine, CAMPAIGN)
    assert (jax["case"], jax["status"]) == ("mlp tiny", "ok")
    assert (jax["latency_min_ns"], jax["latency_max_ns"]) == (1000, 1249)
    assert (jax["latency_samples"], jax["latency_p99_ns"]) == (250, None)
    assert jax["latency_p50_ns"] < jax["latency_p95_ns"] < jax["latency_max_ns"]
    assert (jax["process_baseline_bytes"], jax["planned_bytes"]) == (500_000, None)
    assert (torch["latency_p50_ns"], torch["host_boundness"], torch["net_mj"]) == (None,) * 3
