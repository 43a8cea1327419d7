"""What the benchmarks share: measure a profile of one duel, and keep what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchcore.planning.matrix import save_plan
from benchcore.planning.profiles import Profile
from benchcore.running.duels import measure_duel
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.state import State
from benchcore.store.incoming.documents import read_document

RESULTS = Path(__file__).parent / "results"


def measure(profile: Profile, state: State, *, python: str | None = None) -> dict[str, Any]:
    """Measure the profile's one duel in a campaign of its own; its result document."""
    name = f"{profile.name}-{datetime.now(UTC):%Y%m%dt%H%M%S}"
    plan = draft_plan(profile, site="local", campaign=name, python=python)
    save_plan(plan, campaign_folder(state, name) / "plan.json")
    (duel,) = plan.duels
    return read_document(measure_duel(plan, duel, state))


def describe_machine(document: dict[str, Any]) -> dict[str, Any]:
    """Where and when a document was measured."""
    allocation = document["allocation"]
    return {
        "device": allocation["device"]["model"],
        "cpus": allocation["host"]["cpus"],
        "day": allocation["started_at"][:10],
    }


def time_call(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def store_results(name: str, results: object, *, indent: int | None = 1) -> None:
    """Write results as JSON under `benchmarks/results`; without `indent` as one line."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=indent) + "\n")
