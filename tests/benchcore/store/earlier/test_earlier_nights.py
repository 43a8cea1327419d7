"""What earlier nights took, and how far their starts spread, shapes the plan of the next."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from newest_releases import RELEASES
from result_documents import JAX, TORCH, make_document, spool_document

from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import Placement
from benchcore.planning.tracks import JAX_NEWEST, TORCH_COMPILE
from benchcore.protocol import DuelLimits
from benchcore.running import plans
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.earlier.nights import describe_kind, read_durations, read_earlier_duels
from benchcore.store.incoming.ingest import ingest_spool

SPREADS = {"train_b128": 0.05, "infer_b32": 0.001}
LIMITS = DuelLimits(max_starts=10, budget_s=200.0, compilations=3)


@pytest.fixture
def plan() -> Plan:
    matches = tuple(
        Match(workload="mlp", case=case, arms=(JAX_NEWEST, TORCH_COMPILE), expected_s=200)
        for case in SPREADS
    )
    profile = Profile(name="two", matches=matches, limits=LIMITS)
    return make_plan(profile, RELEASES, campaign="nightly-two", site="local")


def _store_nights(
    engine: Engine, state: State, *, nights: int = 6, starts: int = 6, compiled: float = 0.0
) -> None:
    """Nights of both cases; `compiled` is how far compilations spread. A start takes 30 s."""
    rng = random.Random(7)
    for night in range(nights):
        for number, (case, spread) in enumerate(SPREADS.items()):
            offsets = [rng.gauss(0, compiled) for _ in range(LIMITS.compilations)]
            factors = tuple(
                math.exp(offsets[start % 3] + rng.gauss(0, spread)) for start in range(starts)
            )
            torch = replace(TORCH, arm=TORCH_COMPILE.name, start_factors=factors)
            document: dict[str, Any] = make_document(
                [replace(JAX, arm=JAX_NEWEST.name), torch],
                duel_run=f"{night:08x}{number:08x}",
                campaign=f"night-{night}",
                starts=starts,
            )
            document["duel"] |= {"workload": "mlp", "case": case, "starts": LIMITS.starts}
            begun = f"2026-01-0{night + 1}T0{number + 3}:"
            ended = f"{begun}{starts // 2:02d}:00+00:00"
            at = {"started_at": f"{begun}00:00+00:00", "ended_at": ended}
            document["allocation"] |= {"site": "local", **at}
            for contender in document["contenders"]:
                for start in contender["starts"]:
                    start["compilation"] = start["index"] % LIMITS.compilations
            spool_document(state.spool, document)
    assert not ingest_spool(engine, state).rejected
    for night in range(nights):
        replace_failed_checks(engine, f"night-{night}", [])
        judge_campaign(engine, f"night-{night}")


def test_the_spread_and_the_seconds_of_a_start_are_measured(
    engine: Engine, state: State, plan: Plan
) -> None:
    _store_nights(engine, state)
    found = read_earlier_duels(engine, "local")
    noisy, steady = (found[describe_kind(duel)] for duel in plan.duels)
    assert noisy.start_s == steady.start_s == 30.0
    ((noisy_pair,), (steady_pair,)) = noisy.pairs, steady.pairs
    assert noisy_pair.starts == pytest.approx(0.05, rel=0.4)
    assert steady_pair.starts == pytest.approx(0.001, rel=0.4)
    assert read_durations(engine, "local")[describe_kind(plan.duels[0])] == 180.0
    assert read_earlier_duels(engine, "elsewhere") == {}


def test_compilations_that_differ_are_separated_from_starts(
    engine: Engine, state: State, plan: Plan
) -> None:
    _store_nights(engine, state, compiled=0.04)
    ((pair,),) = (read_earlier_duels(engine, "local")[describe_kind(plan.duels[1])].pairs,)
    assert pair.starts == pytest.approx(0.001, rel=0.4)
    assert pair.compilations == pytest.approx(0.04, rel=0.4)


@pytest.mark.parametrize(("nights", "starts", "known"), [(2, 3, False), (4, 3, True)])
def test_too_few_starts_show_no_spread(
    engine: Engine, state: State, plan: Plan, nights: int, starts: int, known: bool
) -> None:
    _store_nights(engine, state, nights=nights, starts=starts)
    assert (describe_kind(plan.duels[0]) in read_earlier_duels(engine, "local")) is known


def test_a_night_gives_the_noisy_pair_more_of_its_time(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "draft_plan", lambda *given, **named: plan)
    placement = Placement(site="local", campaign="nightly-two", python=None)
    profile = Profile(name="two", matches=(), limits=LIMITS)
    assert plans.draft_night(profile, placement, state) == plan
    _store_nights(engine, state)
    noisy, steady = plans.draft_night(profile, placement, state).duels
    assert noisy.limits.budget_s > 200.0 > steady.limits.budget_s
    assert noisy.limits.budget_s + steady.limits.budget_s == pytest.approx(400.0)
