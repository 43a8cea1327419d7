"""Plans calibration runs: duels with a known answer, rotating by date.

A calibration run measures like a confirmation, with environments that did not change: both sides,
each with a replicate, and the first one again as control. In some runs the replicate of one side
does 2 or 5 % more work. The starts of a run are spread over nights: one or a few per night.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import date

from benchcore.planning.matrix import Plan, PlannedDuel, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import Arm
from benchcore.protocol import CALIBRATION_TRACK, DuelLimits
from benchcore.verdict.confirmation.error_rates import CELLS, STARTS
from benchcore.workloads.settings import INJECTED_SLOWDOWN

SIZES = (0, 5, 0, 2)
"""Injected slow-down in per cent, run after run: half of them have none."""
SIDES = ("a", "b")
_ROUNDS = 6


def number_tonight(profile: Profile, day: date) -> range:
    """The numbers of a night's starts; they continue from night to night."""
    first = day.toordinal() * profile.calibration_starts
    return range(first, first + (profile.calibration_starts if profile.calibration_matches else 0))


def add_calibration_starts(plan: Plan, profile: Profile, numbers: Iterable[int]) -> Plan:
    """The plan with the starts of these numbers, each a separate duel. `plan.releases` must have
    the requests of the profile's `calibration_matches`."""
    duels = tuple(_plan_start(plan, profile, number) for number in numbers)
    return dataclasses.replace(plan, duels=(*plan.duels, *duels))


def _plan_start(plan: Plan, profile: Profile, number: int) -> PlannedDuel:
    run = number // STARTS
    percent, side = SIZES[run % len(SIZES)], SIDES[run // len(SIZES) % len(SIDES)]
    match = profile.calibration_matches[
        run // (len(SIZES) * len(SIDES)) % len(profile.calibration_matches)
    ]
    measured = dataclasses.replace(
        profile,
        matches=(_make_match(match, profile.limits_of(match), side, percent),),
        seed=number,
    )
    planned = make_plan(measured, plan.releases, campaign=plan.campaign, site=plan.site)
    return planned.duels[0]


def _make_match(match: Match, limits: DuelLimits, side: str, percent: int) -> Match:
    """One start of a calibration run: the new cell of `side` does `percent` more work."""
    a, b = match.arms
    arms = {"a_old": a, "a_new": a, "b_old": b, "b_new": b, "control": a}
    if percent:
        arms[f"{side}_new"] = _slow_down(arms[f"{side}_new"], percent)
    return dataclasses.replace(
        match,
        arms=tuple(arms[cell] for cell in CELLS),
        track=CALIBRATION_TRACK,
        limits=dataclasses.replace(limits.exactly(starts=1, rounds=_ROUNDS), passes=False),
    )


def _slow_down(arm: Arm, percent: int) -> Arm:
    settings = {**arm.settings, INJECTED_SLOWDOWN: str(percent)}
    return dataclasses.replace(arm, name=f"{arm.name}-slowed-{percent}", settings=settings)
