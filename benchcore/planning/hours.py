"""Fits a night's plan into the hours that it is given, the most valuable duels first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import DEFAULT_TRACK
from benchcore.verdict.duel.physics import SENTINELS

AROUND_S = 23.0
"""Seconds of a night before its first duel and after its last one, with environments and proofs in
place: planning, Prefect's start, checks, verdicts and pages. What a campaign of empty duels takes
beside them (`benchmarks/results/growth.json`: 28.3 s with 10 duels, 50.1 s with 50)."""
BETWEEN_S = 3.0
"""Seconds from a duel's end to the begin of the next: the means of the stored nights of `breadth`
are 2.5 to 2.9 s (`results/*/spool/nightly-breadth-*`). Some 2 s of them are a wait for the limit of
measuring tasks, which only a server on SQLite that has this limit still costs."""


def rank_duel(duel: PlannedDuel) -> int:
    """Larger is more valuable: sentinels, as nothing counts without their ceilings; then the
    default track; then the rest."""
    return 2 if duel.workload in SENTINELS else 1 if duel.track == DEFAULT_TRACK else 0


def expect_night(duels: Iterable[PlannedDuel], expected_s: Callable[[PlannedDuel], float]) -> float:
    """Seconds of a night of these duels on one device, with environments and proofs in place."""
    return AROUND_S + sum(expected_s(duel) + BETWEEN_S for duel in duels)


def fit_hours(plan: Plan, hours: float, expected_s: Callable[[PlannedDuel], float]) -> Plan:
    """The plan with the duels that fit into these hours of one device, in the plan's order, and a
    note that names each of the others. Environments that must be built and proofs that must be made
    come on top.

    Duels of one rank are taken in the plan's order; one that is too long leaves room for shorter
    ones after it. Raises UserError where nothing but sentinels fits.
    """
    left_s = 3600 * hours - AROUND_S
    kept: set[str] = set()
    ranked = sorted(plan.duels, key=lambda duel: -rank_duel(duel))
    for duel in ranked:
        taken_s = expected_s(duel) + BETWEEN_S
        if taken_s <= left_s:
            left_s -= taken_s
            kept.add(duel.duel_run)
    compared = [duel for duel in ranked if rank_duel(duel) == 1 and len(duel.contenders) > 1]
    if compared and not any(duel.duel_run in kept for duel in compared):
        sentinels = [duel for duel in ranked if rank_duel(duel) == 2]
        least_s = expect_night([*sentinels, min(compared, key=expected_s)], expected_s)
        raise UserError(
            "wanted enough hours for one duel with its sentinels, "
            f"{math.ceil(least_s / 36) / 100:g} at least, "
            f"got {hours:g}; choose more with --hours"
        )
    notes = [
        f"left out: {duel.title} (about {expected_s(duel):.0f} s) does not fit into {hours:g} h"
        for duel in plan.duels
        if duel.duel_run not in kept
    ]
    duels = tuple(duel for duel in plan.duels if duel.duel_run in kept)
    return dataclasses.replace(plan, duels=duels, notes=(*plan.notes, *notes))
