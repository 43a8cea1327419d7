"""Fits a night's plan into the hours that it is given, the most valuable duels first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import DEFAULT_TRACK
from benchcore.verdict.duel.physics import SENTINELS


def rank_duel(duel: PlannedDuel) -> int:
    """Larger is more valuable: sentinels, as nothing counts without their ceilings; then the
    default track; then the rest."""
    return 2 if duel.workload in SENTINELS else 1 if duel.track == DEFAULT_TRACK else 0


def fit_hours(plan: Plan, hours: float, expected_s: Callable[[PlannedDuel], float]) -> Plan:
    """The plan with the duels that fit into these hours of one device, in the plan's order, and a
    note that names each of the others.

    Duels of one rank are taken in the plan's order; one that is too long leaves room for shorter
    ones after it. Raises UserError where nothing but sentinels fits.
    """
    left_s = 3600 * hours
    kept: set[str] = set()
    ranked = sorted(plan.duels, key=lambda duel: -rank_duel(duel))
    for duel in ranked:
        if expected_s(duel) <= left_s:
            left_s -= expected_s(duel)
            kept.add(duel.duel_run)
    compared = [duel for duel in ranked if rank_duel(duel) == 1 and len(duel.contenders) > 1]
    if compared and not any(duel.duel_run in kept for duel in compared):
        sentinels_s = sum(expected_s(duel) for duel in ranked if rank_duel(duel) == 2)
        least_s = sentinels_s + min(map(expected_s, compared))
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
