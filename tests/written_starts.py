"""Starts that are written instead of measured, with known amounts of a metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from result_documents import JAX, TORCH, Racer, make_document, plant_amounts
from stored_histories import store_history

from benchcore.cell.measure.host import describe_device
from benchcore.planning.matrix import Plan
from benchcore.state import State
from benchcore.store.database import Engine

OLD = replace(JAX, name="jax-jit-0.9.0", arm="jax-jit")
NEW = replace(OLD, name="jax-jit-0.9.1", version="0.9.1")
OTHER = replace(TORCH, name="torch-eager-2.10.0", arm="torch-eager")
_CASE = {"workload": "matmul", "case": "tiny_op", "use_case": "op"}


def place(document: dict[str, Any]) -> dict[str, Any]:
    """The document as one of this machine's CPU, of `matmul tiny_op`."""
    document["duel"] |= _CASE
    document["allocation"]["device"] = describe_device("cpu")
    for contender in document["contenders"]:
        contender["settings"] = {"compile": "jit" if contender["framework"] == "jax" else "none"}
    return document


@dataclass
class WrittenStarts:
    """Writes every planned start: the metric of a version is `amounts` of it, plus noise."""

    state: State
    engine: Engine
    metric: str
    amounts: Mapping[str, float]
    noise: float
    plans: list[Plan] = dataclasses.field(default_factory=list)

    def measure(self, plan: Plan, title: str) -> None:
        """Write a document per planned duel, and ingest it."""
        self.plans.append(plan)
        documents = []
        for duel in [each for each in plan.duels if each.case == _CASE["case"]]:
            named = {"duel_run": duel.duel_run, "campaign": plan.campaign, "starts": 1}
            racers = [self._racer(each.name) for each in duel.contenders]
            document = place(make_document(racers, **named))
            rng = np.random.default_rng(duel.seed)
            for side, racer in enumerate(racers):
                amount = self.amounts[racer.version] * math.exp(rng.normal(0, self.noise))
                plant_amounts([document], side, self.metric, [amount])
            documents.append(document)
        store_history(self.engine, self.state, documents)

    def report(self, text: str) -> None:
        """Nobody reads it."""

    def _racer(self, name: str) -> Racer:
        base = next(each for each in (OLD, NEW, OTHER) if name.startswith(each.name))
        return replace(base, name=name, role="pinned")
