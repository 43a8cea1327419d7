"""Plans trials of our own verdicts: duels whose truth is known, in a rotation that dates decide.

A trial is what a confirmation measures, of environments that did not change: both sides, each
with a twin, and the first once more as control. In some trials the twin of one side does 2 or 5 %
more work. A trial's starts are spread over nights, so that a night takes one or a few.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import date

from benchcore.matrix import Plan, PlannedDuel, make_plan
from benchcore.profiles import Match, Profile
from benchcore.protocol import CALIBRATION_TRACK
from benchcore.tracks import Arm
from benchcore.verdict.calibration import CELLS, STARTS
from benchcore.workloads.settings import HANDICAP

SIZES = (0, 5, 0, 2)
"""Per cent of more work, trial after trial: half of them have none."""
SIDES = ("a", "b")
_ROUNDS = 6


def number_tonight(profile: Profile, day: date) -> range:
    """The numbers of the starts that are a night's: from night to night they go on."""
    first = day.toordinal() * profile.trial_starts
    return range(first, first + (profile.trial_starts if profile.trials else 0))


def add_trials(plan: Plan, profile: Profile, numbers: Iterable[int]) -> Plan:
    """The plan with the starts of these numbers, each a duel of its own. `plan.releases` must have
    what the arms of the profile's trials ask for."""
    duels = tuple(_plan_start(plan, profile, number) for number in numbers)
    return dataclasses.replace(plan, duels=(*plan.duels, *duels))


def _plan_start(plan: Plan, profile: Profile, number: int) -> PlannedDuel:
    trial = number // STARTS
    percent, side = SIZES[trial % len(SIZES)], SIDES[trial // len(SIZES) % len(SIDES)]
    match = profile.trials[trial // (len(SIZES) * len(SIDES)) % len(profile.trials)]
    measured = dataclasses.replace(
        profile,
        matches=(play(match, side, percent),),
        seed=number,
        starts=1,
        max_starts=1,
        rounds=_ROUNDS,
        max_rounds=_ROUNDS,
    )
    planned = make_plan(measured, plan.releases, campaign=plan.campaign, site=plan.site)
    return planned.duels[0]


def play(match: Match, side: str, percent: int) -> Match:
    """One start of a trial in which the new cell of a side does so much more work."""
    a, b = match.arms
    arms = {"a_old": a, "a_new": a, "b_old": b, "b_new": b, "control": a}
    if percent:
        arms[f"{side}_new"] = _slow_down(arms[f"{side}_new"], percent)
    return dataclasses.replace(
        match,
        arms=tuple(arms[cell] for cell in CELLS),
        track=CALIBRATION_TRACK,
        passes=False,
    )


def _slow_down(arm: Arm, percent: int) -> Arm:
    settings = {**arm.settings, HANDICAP: str(percent)}
    return dataclasses.replace(arm, name=f"{arm.name}-slowed-{percent}", settings=settings)
