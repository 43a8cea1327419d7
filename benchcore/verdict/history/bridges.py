"""Bridges: what a lasting new condition, such as a driver or METHOD, did to a series' level, by a
pair whose environments stayed the same across it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from benchcore.verdict.history.conditions import (
    ConditionChange,
    Conditions,
    list_condition_changes,
)
from benchcore.verdict.history.levels import measure_correlation, measure_level, measure_spread
from benchcore.verdict.history.series import METHOD_CONDITION, Bridge, Night
from benchcore.verdict.history.thresholds import (
    LASTING_NIGHTS,
    LEVEL_NIGHTS,
    STEP_SCALE,
    SeriesScale,
)
from benchcore.verdict.samples import t_quantile

_Pair = tuple[str, str]
_ALPHA = 0.001
"""How often a condition that moved nothing is bridged. A false bridge would shift all later nights;
a true move without a bridge is still a shift of the series."""


@dataclass(frozen=True, kw_only=True)
class _Period:
    """Nights under the same lasting conditions, and what changed just before them."""

    changes: tuple[ConditionChange, ...]
    nights: tuple[Night, ...]

    @property
    def has_new_method(self) -> bool:
        return any(each.name == METHOD_CONDITION for each in self.changes)


def bridge_conditions(
    nights: Iterable[Night], scale: SeriesScale = STEP_SCALE
) -> tuple[list[Night], list[Bridge]]:
    """The nights as if their conditions had stayed those of the first one, oldest first, and a
    bridge for every lasting change.

    The control pair is two environments that were measured on both sides of the change, in the
    same duels: what moved their ratio is the condition. Its move is taken from all later nights if
    it is certain (`_ALPHA`) and matters on the metric's scale; a move by METHOD always is.
    Without such a pair a new METHOD begins a new series. Until both sides have
    `LASTING_NIGHTS` nights, those of a new METHOD wait outside the series, while more may come; if
    another condition changes before, they stay outside, and the bridge leads across both changes.
    """
    periods = _join_short(_split(sorted(nights, key=lambda each: (each.at, each.duel_run))))
    kept, bridges, offset = list(periods[0].nights) if periods else [], list[Bridge](), 0.0
    for before, after in pairwise(periods):
        found = _measure(before.nights, after, scale)
        bridges.append(found)
        offset += found.log_ratio if found.applied and found.log_ratio is not None else 0.0
        if after.has_new_method and not found.applied:
            if after is periods[-1] and _may_bridge(before.nights, after.nights):
                continue  # they wait
            kept, offset = [], 0.0
        kept += [_bridge(night, offset) for night in after.nights]
    return kept, bridges


def _may_bridge(before: Sequence[Night], after: Sequence[Night]) -> bool:
    """Whether nights to come may add to a pair that has enough nights before, and has some in the
    last of these nights after."""
    old, last = _collect(before[-LEVEL_NIGHTS:]), _collect(after[-LASTING_NIGHTS:])
    has_enough = any(len(old.get(pair, ())) >= LASTING_NIGHTS for pair in last)
    return has_enough and len(after) < LEVEL_NIGHTS


def _bridge(night: Night, offset: float) -> Night:
    if offset == 0.0:  # copies of all nights would take most of the time
        return night
    return replace(night, log_ratio=night.log_ratio - offset, bridged=offset)


def _split(nights: Sequence[Night]) -> list[_Period]:
    rows = [(0, list[ConditionChange]()), *_find_lasting(nights)] if nights else []
    ends = [row for row, _ in rows[1:]] + [len(nights)]
    return [
        _Period(changes=tuple(changes), nights=tuple(nights[row:end]))
        for (row, changes), end in zip(rows, ends, strict=True)
    ]


def _join_short(periods: Sequence[_Period]) -> list[_Period]:
    """The periods without those of a new METHOD that ended too soon to be bridged: an odd night
    must not end a history. Their changes count for the next period. If these cancel out, the period
    before continues."""
    joined, pending = [*periods[:1]], tuple[ConditionChange, ...]()
    for number, each in enumerate(periods[1:], start=2):
        period = replace(each, changes=_add_up(*pending, *each.changes))
        is_short = len(each.nights) < LASTING_NIGHTS and number < len(periods)
        if period.has_new_method and is_short:
            pending = period.changes
            continue
        pending = ()
        if period.changes:
            joined.append(period)
        else:
            joined[-1] = replace(joined[-1], nights=(*joined[-1].nights, *each.nights))
    return joined


def _add_up(*changes: ConditionChange) -> tuple[ConditionChange, ...]:
    """The net effect of consecutive changes, by name."""
    old = {each.name: each.old for each in reversed(changes)}
    new = {each.name: each.new for each in changes}
    return tuple(
        ConditionChange(name=name, old=old[name], new=value)
        for name, value in sorted(new.items())
        if old[name] != value
    )


def _find_lasting(nights: Sequence[Night]) -> list[tuple[int, list[ConditionChange]]]:
    """The rows at which a condition changed and stayed, so far: jobs that alternate between nodes
    change nothing that lasts. A new METHOD always counts."""
    known, filled = dict[str, str](), list[dict[str, str]]()
    last: Conditions | None = None
    for night in nights:
        if night.conditions is not last and not night.conditions.items() <= known.items():
            known = {**known, **night.conditions}
        last = night.conditions
        filled.append(known)
    found: list[tuple[int, list[ConditionChange]]] = []
    for row, (old, new) in enumerate(pairwise(filled), start=1):
        if old is new:  # as in nearly all nights
            continue
        before = filled[max(0, row - LASTING_NIGHTS) : row]
        after = filled[row : row + LASTING_NIGHTS]
        changes = [
            each
            for each in list_condition_changes(old, new)
            if each.name == METHOD_CONDITION
            or (
                all(one.get(each.name) == each.old for one in before)
                and all(one[each.name] == each.new for one in after)
            )
        ]
        if changes:
            found.append((row, changes))
    return found


def _measure(before: Sequence[Night], after: _Period, scale: SeriesScale) -> Bridge:
    """The move of the pair that most nights near the change have on both sides."""
    found = Bridge(at=after.nights[0].at, changes=after.changes)
    sides = before[-LEVEL_NIGHTS:], after.nights[:LEVEL_NIGHTS]
    pair, old, new = _choose_pair(*sides)
    if pair is None:
        return found
    found = replace(found, pair=pair, num_before=len(old), num_after=len(new))
    if found.reason:
        return found
    move, error, freedom = _compare(np.array(old), np.array(new), scale)
    half = t_quantile(0.975, freedom) * error
    is_certain = abs(move) > t_quantile(1 - _ALPHA / 2, freedom) * error
    is_real = is_certain and abs(move) >= math.log1p(scale.smallest)
    return replace(
        found,
        log_ratio=move,
        low=move - half,
        high=move + half,
        applied=is_real or after.has_new_method,
    )


def _choose_pair(
    before: Sequence[Night], after: Sequence[Night]
) -> tuple[_Pair | None, list[float], list[float]]:
    """The pair of environments that both sides measured most often, and its ratios; the newest
    versions come first among equals."""
    old, new = _collect(before), _collect(after)
    shared = [pair for pair in new if pair in old]
    if not shared:
        return None, [], []
    pair = max(shared, key=lambda each: min(len(old[each]), len(new[each])))
    return pair, old[pair], new[pair]


def _collect(nights: Sequence[Night]) -> dict[_Pair, list[float]]:
    found = dict[_Pair, list[float]]()
    for night in nights:
        for pair, log_ratio in {night.environments: night.log_ratio, **night.controls}.items():
            found.setdefault(pair, []).append(log_ratio)
    return found


def _compare(old: np.ndarray, new: np.ndarray, scale: SeriesScale) -> tuple[float, float, int]:
    """How far the level moved, its standard error and degrees of freedom: Student's t with one
    spread for both sides, wider where neighbouring nights are correlated."""
    freedom = len(old) + len(new) - 2
    squares = sum(
        (len(each) - 1) * max(measure_spread(each) or 0.0, scale.noise_floor) ** 2
        for each in (old, new)
    )
    rho = max(measure_correlation(each) for each in (old, new))
    variance = squares / freedom * (1 / len(old) + 1 / len(new)) * (1 + rho) / (1 - rho)
    return measure_level(new) - measure_level(old), math.sqrt(variance), freedom
