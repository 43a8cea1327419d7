"""Proof documents: taken in once, replaced by newer ones, and refused when they are none."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import pytest
from proof_documents import make_proof, store_proof
from result_documents import make_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.incoming.proofs import ProofScope, find_proven, ingest_proofs, list_proofs

SUBJECT = ProofScope(
    workload="mlp",
    precision="fp32_ieee",
    checkpoint=None,
    snapshot="a" * 64,
    device_fingerprint="00112233445566ff",
)
PAIR = ("train", frozenset(("jax-0.9.0", "torch-2.10.0")))


def _proof(ended_at: str = "2026-01-02T04:00:00+00:00", **changes: Any) -> dict[str, Any]:
    document = make_document()
    document["duel"]["precision"] = "fp32_ieee"
    return {**make_proof(document, **changes), "ended_at": ended_at}


def test_a_proof_is_ingested_once_and_found(engine: Engine, state: State) -> None:
    store_proof(state, engine, _proof())
    first = list_proofs(engine, SUBJECT)
    assert ingest_proofs(engine, state) == []
    assert list_proofs(engine, SUBJECT) == first
    assert len(first) == 1
    assert find_proven(engine, SUBJECT, 1) == {PAIR}


@pytest.mark.parametrize(("days", "read"), [(8, False), (6, True)])
def test_a_night_reads_no_proofs_of_long_before_the_newest_one(
    engine: Engine, state: State, days: int, read: bool
) -> None:
    newest = datetime.fromisoformat(_proof()["ended_at"]).timestamp()
    path = state.proofs / "old.json"
    path.write_text("no proof")
    os.utime(path, (newest - days * 86_400,) * 2)
    assert len(ingest_proofs(engine, state, only_new=True)) == 1  # none is there to compare with
    path.unlink()
    store_proof(state, engine, _proof())
    path.write_text("no proof")
    os.utime(path, (newest - days * 86_400,) * 2)
    assert len(ingest_proofs(engine, state, only_new=True)) == read
    assert len(ingest_proofs(engine, state)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "resnet50"},
        {"precision": "bf16"},
        {"checkpoint": "c" * 64},
        {"snapshot": "b" * 64},
        {"device_fingerprint": "another"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_a_proof_holds_for_nothing_else(
    engine: Engine, state: State, other: dict[str, str]
) -> None:
    store_proof(state, engine, _proof())
    assert find_proven(engine, ProofScope(**{**vars(SUBJECT), **other}), 1) == set()


def test_a_failed_or_incomplete_proof_does_not_count(engine: Engine, state: State) -> None:
    store_proof(state, engine, _proof())
    assert find_proven(engine, SUBJECT, 5) == set()
    store_proof(state, engine, _proof("2026-01-03T04:00:00+00:00", passed=False), "newer")
    assert find_proven(engine, SUBJECT, 1) == set()


def test_the_newest_proof_of_a_pair_replaces_older_ones(engine: Engine, state: State) -> None:
    store_proof(state, engine, _proof("2026-01-03T04:00:00+00:00", reason="newer"), "a-newer")
    store_proof(state, engine, _proof("2026-01-02T04:00:00+00:00", reason="older"), "b-older")
    assert [row["reason"] for row in list_proofs(engine, SUBJECT)] == ["newer"]


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"extra": 1}, {"ended_at": "2026-13-02T04:00:00+00:00"}, {"rows": [{}]}],
    ids=str,
)
def test_a_file_that_is_not_a_proof_is_refused_and_reported(
    engine: Engine, state: State, change: dict[str, Any]
) -> None:
    (state.proofs / "bad.json").write_text(json.dumps({**_proof(), **change}))
    (refused,) = ingest_proofs(engine, state)
    assert "bad.json" in refused
    assert ("update Dead Heat" in refused) == ("schema" in change)
    assert ("delete it" in refused) == ("schema" not in change)
    assert list_proofs(engine, SUBJECT) == []


def _damage(state: State, kind: str) -> None:
    proof, path = _proof(), state.proofs / "bad.json"
    (row,) = proof["rows"]
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(state.proofs / "nowhere")
    elif kind == "nested":
        path.write_text("[" * 100_000)
    else:
        changes = {
            "unknown contender": {"a": "jax-9.9.9"},
            "surrogate": {"reason": "\ud800"},
            "NUL": {"reason": "\0"},
            "long": {"use_case": "x" * 101},
        }
        proof["rows"] = [{**row, **changes.get(kind, {})}]
        if kind == "time":
            proof["ended_at"] = "0001-01-01T00:00:00+23:00"
        path.write_text(json.dumps(proof))


@pytest.mark.parametrize(
    "kind",
    [
        *("folder", "dangling link", "nested"),
        *("unknown contender", "surrogate", "NUL", "long", "time"),
    ],
)
def test_a_damaged_file_among_proofs_is_named_and_the_others_are_ingested(
    each_engine: Engine, state: State, kind: str
) -> None:
    _damage(state, kind)
    (state.proofs / "good.json").write_text(json.dumps(_proof()))
    (refused,) = ingest_proofs(each_engine, state)
    assert "bad.json" in refused and "delete it" in refused
    assert len(list_proofs(each_engine, SUBJECT)) == 1


def test_a_proof_dated_ahead_hides_no_later_one(engine: Engine, state: State) -> None:
    store_proof(state, engine, _proof("2126-01-02T04:00:00+00:00"))
    (state.proofs / "later.json").write_text(json.dumps(make_proof(make_document(), reason="new")))
    assert ingest_proofs(engine, state, only_new=True) == []
    scope = ProofScope(**{**vars(SUBJECT), "precision": make_document()["duel"]["precision"]})
    assert [row["reason"] for row in list_proofs(engine, scope)] == ["new"]
