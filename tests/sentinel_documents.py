"""Documents of sentinels, and of a candidate that their ceilings judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, DUEL_RUN, JAX, TORCH, Racer, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.incoming.ingest import ingest_spool
from data_checks.check import check_campaign

Document = dict[str, Any]
FLOPS = 2 * 1024**3
BYTES = 512 << 20


def ingest_proven(state: State, *documents: Document) -> Engine:
    """All of them proven equal: what is marked here is marked for its speed alone."""
    for document in documents:
        spool_document(state.spool, document)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    assert ingest_spool(engine, state).rejected == ()
    for document in documents:
        store_proof(state, engine, make_proof(document), document["duel_run"])
    return engine


def make_matmul(**changes: Any) -> Document:
    """The compute sentinel: its step takes 1 ms in both frameworks: 2147 GFLOP/s."""
    document = make_document(duel_run="a" * 16, starts=2)
    work = {"workload": "matmul", "case": "cpu_1024", "use_case": "op"}
    amounts = {"flops_per_step": FLOPS, "least_bytes_per_step": 12 << 20}
    document["duel"] |= {**work, **amounts, **changes}
    return document


def make_copy(**changes: Any) -> Document:
    """The bandwidth sentinel: 537 GB/s."""
    document = make_document(duel_run="b" * 16, starts=2)
    work = {"workload": "copy", "case": "cpu_256m", "use_case": "op"}
    document["duel"] |= {**work, "flops_per_step": 0, "least_bytes_per_step": BYTES, **changes}
    return document


def make_candidate(
    *,
    flops: int = FLOPS,
    least_bytes: int = 0,
    cache_bytes: int = 0,
    racers: Sequence[Racer] = (JAX, TORCH),
) -> Document:
    """A duel as fast as the compute sentinel, unless its work is changed."""
    document = make_document(racers)
    document["duel"].update(flops_per_step=flops, least_bytes_per_step=least_bytes)
    document["allocation"]["host"]["cache_bytes"] = cache_bytes
    return document


def hurry(document: Document, factor: int, *, start: int | None = None) -> Document:
    """The first contender's steps become this much too fast, in one start or in all."""
    for each in document["contenders"][0]["starts"]:
        if start is None or each["index"] == start:
            for block in each["blocks"]:
                block["elapsed_ns"] //= factor
    return document


def list_failed_checks(state: State, *documents: Document) -> dict[tuple[str | None, str], str]:
    """Reasons by contender and check; only the candidate fails, and then its ratio can't count."""
    engine = ingest_proven(state, *documents)
    report = check_campaign(engine, CAMPAIGN)
    ratios = {each.counts for each in judge_campaign(engine, CAMPAIGN)}
    marks = {(each.contender, each.expectation): each.reason for each in report.failed_checks}
    assert {each.duel_run for each in report.failed_checks} <= {DUEL_RUN}
    assert (False in ratios) == bool(marks)
    engine.dispose()
    return marks
