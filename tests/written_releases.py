"""Campaigns of releases whose duels are written instead of measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from result_documents import JAX, TORCH, Racer, make_document, plant_amounts
from stored_histories import store_history

from benchcore.environments.version_requests import Release, parse_request
from benchcore.errors import CampaignIncompleteError
from benchcore.planning.matrix import Plan, PlannedContender, make_plan, save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import TORCH_EAGER, Arm
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duels import store_environments
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database

NEW, OLD, OLDER, CAMPAIGN = "0.9.1", "0.9.0", "0.8.3", "release-jax-0.9.1-0"
CASES = ("tiny_infer", "tiny_train")
_JIT = {"compile": "jit"}


def plan_versions(cases: tuple[str, ...], versions: tuple[str, ...] = (NEW, OLD)) -> Plan:
    """Every version of JAX and the newest PyTorch on these cases of `mlp`, in one duel each."""
    arms = (
        *(Arm(name="jax-jit", request=f"jax=={each}", settings=_JIT) for each in versions),
        TORCH_EAGER,
    )
    return plan_matches(
        [Match(workload="mlp", case=case, arms=arms, expected_s=10.0) for case in cases]
    )


def plan_matches(matches: Sequence[Match]) -> Plan:
    """The campaign of these matches, in which NEW is the newest JAX."""
    requested = {arm.request: parse_request(arm.request) for each in matches for arm in each.arms}
    newest = {"jax": NEW, "torch": "2.10.0"}
    releases = {
        text: Release(
            framework=each.framework,
            version=each.version or newest[each.framework],
            role=each.selector,
            python=Path("/usr/bin/python3"),
            python_version="3.12.1",
        )
        for text, each in requested.items()
    }
    profile = Profile(name="release", matches=tuple(matches))
    return make_plan(profile, releases, campaign=CAMPAIGN, site="local")


@dataclass
class WrittenDuels:
    """Writes every planned duel. By case or arm, `slower` is the factor of the new version's step
    time; by case, `compiles` that of its compile time. `first` replaces `slower` in the release's
    own campaign."""

    state: State
    engine: Engine
    slower: Mapping[str, float] = field(default_factory=dict[str, float])
    compiles: Mapping[str, float] = field(default_factory=dict[str, float])
    first: Mapping[str, float] = field(default_factory=dict[str, float])
    fails: bool = False
    titles: list[str] = field(default_factory=list[str])
    plans: list[Plan] = field(default_factory=list[Plan])

    def measure(self, plan: Plan, title: str) -> None:
        """Write a document per planned duel, and ingest it."""
        self.titles.append(title)
        self.plans.append(plan)
        if self.fails:
            raise CampaignIncompleteError("the node is gone")
        self.write(plan, self.slower)

    def write(self, plan: Plan, slower: Mapping[str, float]) -> None:
        """The documents of all duels of a plan, with noise of 0.3 %."""
        documents = []
        for duel in plan.duels:
            rng = np.random.default_rng(duel.seed)
            noises = rng.normal(0, 0.003, len(duel.contenders))
            racers = list[Racer]()
            for each, noise in zip(duel.contenders, noises, strict=True):
                factor = slower.get(duel.case, slower.get(each.arm, 1.0)) * float(np.exp(noise))
                racers.append(_make_racer(each, plan.releases[each.release], factor))
            starts = duel.limits.starts if plan.campaign != CAMPAIGN else 3
            named = {"duel_run": duel.duel_run, "campaign": plan.campaign, "starts": starts}
            document = make_document(racers, **named)
            document["duel"] |= {"workload": duel.workload, "case": duel.case, "track": duel.track}
            for side, racer in enumerate(racers):
                more = self.compiles.get(duel.case, 1.0) if NEW in racer.version else 1.0
                amount = more * float(np.exp(rng.normal(0, 0.01)))
                plant_amounts([document], side, "cold_compile_s", [amount])
            documents.append(document)
        store_history(self.engine, self.state, documents)

    def report(self, text: str) -> None:
        """Nobody reads it."""


def _make_racer(planned: PlannedContender, release: Release, factor: float) -> Racer:
    """`factor` slows only the new version of JAX down."""
    is_new = release.framework == "jax" and NEW in release.version
    return replace(
        JAX if release.framework == "jax" else TORCH,
        name=planned.name,
        version=release.version,
        arm=planned.arm,
        role=release.role,
        step_ns=1e6 * (factor if is_new else 1.0),
        start_factors=(1.0, 1.002, 0.998),
    )


def store_campaign(root: Path, plan: Plan, **planted: Any) -> WrittenDuels:
    """The campaign's plan, environments and documents."""
    state = open_state(root)
    save_plan(plan, campaign_folder(state, CAMPAIGN) / "plan.json")
    record = EnvironmentRecord(**make_document()["contenders"][0]["environment"])
    records = {
        request: dataclasses.replace(
            record,
            python="/usr/bin/python3",
            python_version=each.python_version,
            packages={**record.packages, each.framework: each.version},
        )
        for request, each in plan.releases.items()
    }
    store_environments(plan, records, state)
    engine = open_database(state.database_url)
    written = WrittenDuels(state, engine, **planted)
    written.write(plan, written.first or written.slower)
    return written
