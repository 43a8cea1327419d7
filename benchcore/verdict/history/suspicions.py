"""Suspected changes of a series, matched with stored suspicions: one per shift."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

import numpy as np

from benchcore.verdict.history.detect import Detection, detect_shifts
from benchcore.verdict.history.series import Night, Series
from benchcore.verdict.history.thresholds import (
    DRIFT,
    FEWEST_BEFORE,
    LEVEL_NIGHTS,
    SAME_SHIFT_NIGHTS,
    UNSURE_NIGHTS,
    VERSION_MOVE,
    VERSION_NIGHTS,
)

Trigger = Literal["shift", "edge", "version", "drift"]
"""A new level that history shows; last nights that are far off; a new environment that comes with a
move; small steps that add up since an anchor."""
State = Literal["open", "confirmed", "refuted", "unknown", "passed"]
"""`passed`: what was far off came back by itself, before anybody measured again."""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """From night `since` on the series is at a new level, `ratio` times the old one; `low` to
    `high` is its 95 % interval where there is one. `before` is surely at the old level, and
    `after` at the new one."""

    trigger: Trigger
    before: Night
    since: Night
    after: Night
    ratio: float
    low: float | None = None
    high: float | None = None
    reason: str


@dataclass(frozen=True, kw_only=True)
class StoredSuspicion:
    """A suspicion that is kept: since which day, which way, and what came of it."""

    id: int
    trigger: Trigger
    number: int
    ratio: float
    state: State


@dataclass(frozen=True, kw_only=True)
class SuspicionUpdate:
    """What to do with the kept ones: open one (`known` None), bring one up to date, or let one
    pass (`found` None)."""

    known: int | None
    found: Suspicion | None


def suspect(
    series: Series, baseline: int | None = None, found: Detection | None = None
) -> tuple[Suspicion, ...]:
    """Shifts and odd ends of a series' history, versions that came with a move, and drift, in the
    order of nights.

    `baseline` is the day from which people accepted the level; earlier changes are not suspected
    again. None = the first night. `found` is the result of `detect_shifts`, if already known.
    """
    found = found or detect_shifts(series.values, series.numbers)
    said = [
        replace(
            _place(series, each.index, "shift", each.ratio, "the nights are at a new level"),
            before=series.nights[max(0, each.index - 1 - UNSURE_NIGHTS)],
            after=series.nights[min(len(series.nights) - 1, each.index + UNSURE_NIGHTS)],
            low=each.low,
            high=each.high,
        )
        for each in found.shifts
    ]
    said += [_place(series, each.index, "edge", each.ratio, each.reason) for each in found.edges]
    near = SAME_SHIFT_NIGHTS
    for event in _suspect_versions(series):
        if not any(abs(event.since.number - each.since.number) <= near for each in said):
            said.append(event)
    if baseline is not None:
        said = [each for each in said if each.since.number > baseline + SAME_SHIFT_NIGHTS]
    if not said:
        said = _suspect_drift(series, baseline)
    return tuple(sorted(said, key=lambda each: each.since.number))


def _place(series: Series, index: int, trigger: Trigger, ratio: float, reason: str) -> Suspicion:
    return Suspicion(
        trigger=trigger,
        before=series.nights[index - 1],
        since=series.nights[index],
        after=series.nights[index],
        ratio=ratio,
        reason=reason,
    )


def _suspect_versions(series: Series) -> list[Suspicion]:
    """Recent nights with a new environment, from whose median on the level is 2 % away."""
    found = []
    logs = np.log(series.values)
    for index in range(max(FEWEST_BEFORE, len(logs) - VERSION_NIGHTS), len(logs)):
        changed = _name_change(series.nights[index - 1], series.nights[index])
        before = logs[max(0, index - VERSION_NIGHTS) : index]
        move = float(np.median(logs[index:]) - np.median(before))
        if changed and abs(move) >= VERSION_MOVE:
            reason = f"{changed} came with a move of {math.expm1(move):+.1%}"
            found.append(_place(series, index, "version", math.exp(move), reason))
    return found


def _suspect_drift(series: Series, baseline: int | None) -> list[Suspicion]:
    """The last nights against those at an anchor, which stays where it is however slowly the level
    creeps away from it: the baseline, a year ago, or the last release. The largest move is told."""
    first = 0
    if baseline is not None:
        first = next((i for i, n in enumerate(series.nights) if n.number >= baseline), 0)
    logs = np.log(series.values)
    last = float(np.median(logs[-LEVEL_NIGHTS:]))
    found: list[tuple[float, int, str]] = []
    for index, words in _list_anchors(series, first):
        if index >= first and len(logs) - index >= 2 * LEVEL_NIGHTS:
            move = last - float(np.median(logs[index:][:LEVEL_NIGHTS]))
            found.append((move, index, words))
    move, index, words = max(found, key=lambda each: abs(each[0]), default=(0.0, 0, ""))
    if abs(move) < DRIFT:
        return []
    drifted = Suspicion(
        trigger="drift",
        before=series.nights[index],
        since=series.nights[index],
        after=series.nights[-1],
        ratio=math.exp(move),
        reason=f"the level crept by {math.expm1(move):+.1%} since {words}",
    )
    return [drifted]


def _list_anchors(series: Series, first: int) -> list[tuple[int, str]]:
    """Nights to measure drift from. A year ago is the first night of that quarter: an anchor that
    moved each night would ask anew what was answered."""
    nights = series.nights
    anchors = [(first, "its baseline")]
    today = nights[-1].at.date()
    quarter = date(today.year - 1, 3 * ((today.month - 1) // 3) + 1, 1).toordinal()
    if nights[0].number <= quarter:
        year_ago = next(index for index, night in enumerate(nights) if night.number >= quarter)
        anchors.append((year_ago, "the quarter a year ago"))
    new = [index for index in range(1, len(nights)) if _name_change(*nights[index - 1 : index + 1])]
    if new:
        anchors.append((new[-1], "the last release"))
    return anchors


def _name_change(before: Night, after: Night) -> str:
    sides = (("a", before.a, after.a), ("b", before.b, after.b))
    changed = [
        name if name != old else f"a new environment of {name}"
        for side, old, name in sides
        if getattr(before, f"{side}_environment") != getattr(after, f"{side}_environment")
    ]
    return " and ".join(changed)


def reconcile(
    found: Sequence[Suspicion], known: Sequence[StoredSuspicion]
) -> list[SuspicionUpdate]:
    """What changes of the kept suspicions of a series, now that history says this.

    A suspicion that was answered stays so, unless more nights made a shift of what was less. An
    open one that history shows no more has passed.
    """
    changes: list[SuspicionUpdate] = []
    left = list(known)
    for each in found:
        same = min(
            (one for one in left if _is_same(each, one)),
            key=lambda one: (abs(one.number - each.since.number), -one.id),
            default=None,
        )
        if same is None:
            changes.append(SuspicionUpdate(known=None, found=each))
            continue
        left.remove(same)
        grown = each.trigger == "shift" and same.trigger != "shift"
        if same.state == "open" or (grown and same.state != "confirmed"):
            changes.append(SuspicionUpdate(known=same.id, found=each))
    changes += [SuspicionUpdate(known=one.id, found=None) for one in left if one.state == "open"]
    return changes


def _is_same(found: Suspicion, known: StoredSuspicion) -> bool:
    same_way = (found.ratio > 1) == (known.ratio > 1)
    return same_way and abs(found.since.number - known.number) <= SAME_SHIFT_NIGHTS


@dataclass(frozen=True, kw_only=True)
class Priority:
    """A suspicion: by how much the log ratio moved, how many suspicions of its trigger were
    confirmed of those that were answered, and the seconds that a start of its duel takes."""

    id: int
    log_ratio: float
    num_confirmed: int
    num_answered: int
    start_s: float

    @property
    def expected_value(self) -> float:
        """The move that we expect to confirm, for each second of measuring. The chance is Laplace's
        rule of succession, so that what was never answered has one of a half."""
        chance = (self.num_confirmed + 1) / (self.num_answered + 2)
        return chance * abs(self.log_ratio) / self.start_s


def rank_by_priority(prospects: Iterable[Priority]) -> list[int]:
    """Their ids, the most promising first; of equal ones the older."""
    return [each.id for each in sorted(prospects, key=lambda each: (-each.expected_value, each.id))]
