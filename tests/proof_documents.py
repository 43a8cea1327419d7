"""Proofs for tests: that a duel's contenders were proven equal, or were not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.incoming.proofs import ingest_proofs


def make_proof(document: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """What the equivalence pass would leave of a duel's environments; `changes` are every row's."""
    sides = {each["environment"]["key"]: each for each in document["contenders"]}
    row = {
        "use_case": document["duel"]["use_case"],
        "quantity": "logits",
        "reference_error": 1e-15,
        "reference_bound": 2e-8,
        "a_error": 1e-7,
        "a_bound": 1e-6,
        "b_error": 1e-7,
        "b_bound": 1e-6,
        "passed": True,
        "reason": "",
        **changes,
    }
    named = ("name", "arm", "framework", "version", "status")
    return {
        "schema": 1,
        "workload": document["duel"]["workload"],
        "precision": document["duel"]["precision"],
        "checkpoint": document["duel"]["checkpoint"],
        "num_seeds": 1,
        "harness": document["harness"],
        "device": document["allocation"]["device"],
        "started_at": document["allocation"]["started_at"],
        "ended_at": document["allocation"]["ended_at"],
        "contenders": [
            {
                **{key: each[key] for key in named},
                "environment_key": key,
                "lock_sha256": each["environment"]["lock_sha256"],
            }
            for key, each in sides.items()
        ],
        "rows": [
            {**row, "a": a["name"], "b": b["name"]} for a, b in combinations(sides.values(), 2)
        ],
        "drift": [],
    }


def store_proof(
    state: State, engine: Engine, proof: Mapping[str, Any], name: str = "proof"
) -> None:
    """Leave a proof document where the pass does, and take it into the database."""
    (state.proofs / f"{name}.json").write_text(json.dumps(proof), encoding="utf-8")
    assert ingest_proofs(engine, state) == []
