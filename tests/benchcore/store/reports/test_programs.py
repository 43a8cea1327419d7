from __future__ import annotations

from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    JAX,
    OLD_JAX,
    TORCH,
    make_document,
    make_profile,
    spool_document,
)

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import list_programs


@pytest.mark.parametrize(
    ("program", "same", "words"),
    [
        ({"counts": {"dot": 1, "fusion": 1}, "hash": "d" * 64}, True, "same program"),
        ({"counts": {"dot": 4, "fusion": 1}, "hash": "e" * 64}, False, "program: dot 4 -> 1 (eee"),
    ],
)
def test_versions_are_reported_with_the_same_program_or_differences(
    state: State, engine: Engine, program: dict[str, Any], same: bool, words: str
) -> None:
    """From the older to the newer one; two frameworks have nothing to compare."""
    document = make_document((JAX, OLD_JAX, TORCH))
    older = document["contenders"][1]["starts"][0]
    older["profile"] = make_profile(program={"bytes": 4096, **program})
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    judge_campaign(engine, CAMPAIGN)
    (row,) = list_programs(engine, CAMPAIGN)
    assert (row["case"], row["pair"]) == ("mlp tiny", "jax-0.9 against jax-0.8")
    assert row["same"] is same
    assert words in row["summary"]
