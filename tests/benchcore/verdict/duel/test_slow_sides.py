"""A single operation that takes a multiple of the other side's time is named; a model is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, JAX, TORCH, make_document, spool_document

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from benchcore.verdict.duel.ratios import find_slow_side
from data_checks.check import check_campaign

SUITES = {"equivalence"}


@pytest.mark.parametrize(
    ("low", "high", "slower"),
    [(0.70, 0.9, "b"), (0.69, 0.9, None), (-0.9, -0.70, "a"), (-0.9, -0.69, None), (-9, 9, None)],
)
def test_the_whole_interval_lies_beyond_twice_the_time(
    low: float, high: float, slower: str | None
) -> None:
    assert find_slow_side("convolution", low, high) == slower


@pytest.mark.parametrize(
    ("workload", "case", "factor", "slow"),
    [
        ("convolution", "tiny_op_depthwise", 3, TORCH.name),
        ("convolution", "tiny_op_depthwise", 1, None),
        ("mlp", "tiny", 3, None),
    ],
)
def test_a_convolution_at_three_times_the_others_time_is_a_slow_side(
    tmp_path: Path, workload: str, case: str, factor: int, slow: str | None
) -> None:
    """pytorch#157334: depthwise convolutions on a CPU at three times JAX's time (#3, row 42)."""
    state = open_state(tmp_path / "state")
    document = make_document()
    document["duel"] |= {"workload": workload, "case": case, "use_case": "op"}
    for start in document["contenders"][1]["starts"]:
        for block in start["blocks"]:
            block["elapsed_ns"] *= factor
    spool_document(state.spool, document)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    assert ingest_spool(engine, state).rejected == ()
    store_proof(state, engine, make_proof(document))
    check_campaign(engine, CAMPAIGN)
    (ratio,) = judge_and_list(engine, CAMPAIGN)
    assert ratio["counts"], ratio["reason"]
    assert (ratio["a"], ratio["b"], ratio["slow_side"]) == (JAX.name, TORCH.name, slow)
    engine.dispose()
