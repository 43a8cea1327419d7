"""Shares the time of a night's duels: the next start goes to the pair that gains most by it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchcore.cell.stopping import half_width_of_mean
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.protocol import DuelLimits

_SPARE = 0.5
"""Of a start's time, beyond what a duel's starts are expected to take: one that takes a little
longer than on earlier nights still fits."""
_LEAST_CHANGE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PairSpread:
    """Standard deviations of a pair's log ratio: between starts of one compilation, and between
    compilations beyond what their starts explain."""

    starts: float
    compilations: float

    def expect_half_width(self, limits: DuelLimits, num_starts: int) -> float:
        """Half of the 95 % interval that so many starts are expected to give, at least two: the
        wider one of two, as in `benchcore.cell.stopping.nested_half_width`."""
        groups = min(num_starts, limits.compilations)
        if groups == 1:  # all starts share what one compilation chose
            return half_width_of_mean(self.starts, num_starts)
        over_starts = half_width_of_mean(math.hypot(self.starts, self.compilations), num_starts)
        of_mean = self.starts / math.sqrt(num_starts / groups)
        return max(over_starts, half_width_of_mean(math.hypot(of_mean, self.compilations), groups))


@dataclass(frozen=True, kw_only=True)
class EarlierDuels:
    """What earlier nights show of a duel: the seconds of a start, and how far its pairs spread."""

    start_s: float
    pairs: tuple[PairSpread, ...]

    def expect_half_width(self, limits: DuelLimits, num_starts: int) -> float:
        """Half of the 95 % interval of the widest pair."""
        return max(each.expect_half_width(limits, num_starts) for each in self.pairs)


def share_budgets(plan: Plan, find_earlier: Callable[[PlannedDuel], EarlierDuels | None]) -> Plan:
    """The plan with the budgets of its duels shared by what earlier nights show of each, and a note
    if that changed one. Duels that earlier nights don't know keep theirs. The sum stays the same,
    unless the fewest starts take longer.

    Fixed before anything is measured, so the intervals cover as much as with equal budgets. A duel
    still ends at its target, and its hash is that of the budget that its profile asks for.
    """
    known = [(duel, found) for duel in plan.duels if (found := find_earlier(duel)) is not None]
    shared = share_seconds([(duel.limits, found) for duel, found in known])
    budgets = {duel.duel_run: each for (duel, _), each in zip(known, shared, strict=True)}
    duels = tuple(_give(duel, budgets.get(duel.duel_run)) for duel in plan.duels)
    moved = sum(
        abs(new.limits.budget_s - old.limits.budget_s) > _LEAST_CHANGE_S
        for old, new in zip(plan.duels, duels, strict=True)
    )
    if not moved:
        return plan
    note = (
        f"the time of {moved} duels follows the spread of earlier nights: the next start goes to "
        "the pair whose interval it narrows most"
    )
    return dataclasses.replace(plan, duels=duels, notes=(*plan.notes, note))


def _give(duel: PlannedDuel, budget_s: float | None) -> PlannedDuel:
    if budget_s is None:
        return duel
    limits = dataclasses.replace(duel.limits, budget_s=round(budget_s, 1))
    return dataclasses.replace(duel, limits=limits)


def share_seconds(duels: Sequence[tuple[DuelLimits, EarlierDuels]]) -> list[float]:
    """The budget of each duel in seconds. Every duel makes its fewest starts; then the next start
    is that of the duel whose widest interval it narrows most per second, until nothing fits or all
    meet their targets. What is left is shared in proportion."""
    if not duels:
        return []
    whole_s = sum(limits.budget_s for limits, _ in duels)
    starts = [limits.starts for limits, _ in duels]
    left_s = sum(max(0.0, limits.budget_s - _expect_s(limits.starts, e)) for limits, e in duels)
    while (index := _find_next(duels, starts, left_s)) is not None:
        starts[index] += 1
        left_s -= duels[index][1].start_s
    wanted = [_expect_s(count, each) for count, (_, each) in zip(starts, duels, strict=True)]
    return [each * max(1.0, whole_s / sum(wanted)) for each in wanted]


def _expect_s(num_starts: int, earlier: EarlierDuels) -> float:
    return (num_starts + _SPARE) * earlier.start_s


def _find_next(
    duels: Sequence[tuple[DuelLimits, EarlierDuels]], starts: Sequence[int], left_s: float
) -> int | None:
    """The index of the duel that gains most by another start; None = none does, or none fits."""
    gains = dict[int, float]()
    for index, (limits, earlier) in enumerate(duels):
        count = starts[index]
        half = earlier.expect_half_width(limits, count)
        if count < limits.most_starts and half > limits.target and earlier.start_s <= left_s:
            gained = half - earlier.expect_half_width(limits, count + 1)
            gains[index] = gained / earlier.start_s
    best = max(gains, key=gains.__getitem__, default=None)
    return best if best is not None and gains[best] > 0 else None
