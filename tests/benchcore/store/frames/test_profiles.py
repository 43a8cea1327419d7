from __future__ import annotations

from typing import Any

import pytest
from result_documents import CAMPAIGN, JAX, TORCH, make_document, make_profile, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.frames.profiles import bottleneck_frame, list_bottlenecks
from benchcore.store.incoming.ingest import ingest_spool


def _store(state: State, engine: Engine, *documents: dict[str, Any]) -> None:
    for document in documents:
        spool_document(state.spool, document)
    report = ingest_spool(engine, state)
    assert not report.rejected


def _sentinel(workload: str, duel_run: str, **work: int) -> dict[str, Any]:
    document = make_document((JAX,), duel_run=duel_run)
    document["duel"].update(workload=workload, case="cpu", **work)
    return document


def _with_profile(**changes: Any) -> dict[str, Any]:
    document = make_document((JAX, TORCH))
    document["contenders"][0]["starts"][0]["profile"] = make_profile(**changes)
    return document


def test_the_bottleneck_follows_from_the_profile_and_the_ceilings_of_the_night(
    state: State, engine: Engine
) -> None:
    """Steps take 1 ms: 1e9 FLOP a second, where the sentinels reached 1.25e9 and 1e12 bytes."""
    document = _with_profile(kernel_ns=790_000, num_kernels=20)
    document["duel"].update(flops_per_step=10**6, least_bytes_per_step=10**6)
    sentinels = (
        _sentinel("matmul", "1" * 16, flops_per_step=1_250_000, least_bytes_per_step=0),
        _sentinel("copy", "2" * 16, flops_per_step=0, least_bytes_per_step=10**9),
    )
    _store(state, engine, document, *sentinels)
    rows = {row["name"]: row for row in list_bottlenecks(engine, CAMPAIGN) if row["intensity"]}
    found = rows["jax-0.9"]
    assert found["bottleneck"] == "compute"
    assert found["compute_share"] == pytest.approx(0.8, abs=0.01)
    assert found["intensity"] == 1.0
    assert found["ridge"] == pytest.approx(0.00125)
    assert found["host_share"] == pytest.approx(1 - 790 / 800)
    assert found["case"] == "mlp tiny"


def test_a_contender_without_ceilings_is_undecided_with_a_reason(
    state: State, engine: Engine
) -> None:
    _store(state, engine, _with_profile(kernel_ns=790_000))
    row = list_bottlenecks(engine, CAMPAIGN)[0]
    assert row["bottleneck"] == "undecided"
    assert row["compute_share"] is None
    assert "no ceiling of the device was measured" in row["reason"]


def test_a_contender_with_only_degraded_blocks_must_be_measured_again(
    state: State, engine: Engine
) -> None:
    document = _with_profile(kernel_ns=790_000)
    for start in document["contenders"][0]["starts"]:
        for block in start["blocks"]:
            block["telemetry"]["foreign_processes"] = 3
    _store(state, engine, document)
    rows = {row["name"]: row["reason"] for row in list_bottlenecks(engine, CAMPAIGN)}
    assert "no undisturbed block" in rows["jax-0.9"]
    assert "no undisturbed block" not in rows["torch-2.10"]


def test_a_failed_contender_has_no_bottleneck(state: State, engine: Engine) -> None:
    document = _with_profile()
    document["contenders"][1]["status"] = "crash"
    document["contenders"][1]["failure"] = {
        "stage": "block", "start": 2, "reason": "it broke", "traceback": "",
    }  # fmt: skip
    _store(state, engine, document)
    assert list(bottleneck_frame(engine, CAMPAIGN)["name"]) == ["jax-0.9"]


def test_an_empty_frame_has_the_columns_of_a_full_one(state: State, engine: Engine) -> None:
    empty = bottleneck_frame(engine)
    _store(state, engine, _with_profile())
    full = bottleneck_frame(engine)
    assert list(empty.columns) == list(full.columns)
    assert list(empty.dtypes) == list(full.dtypes)
