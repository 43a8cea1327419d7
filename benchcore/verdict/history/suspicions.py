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
"""A new level in the history; odd last nights; a change that came with a new environment; small
changes that add up since an anchor."""
State = Literal["open", "confirmed", "refuted", "unknown", "passed"]
"""`passed`: an odd end returned to the old level before it was measured again."""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """The series is at a new level from night `since` on, `ratio` times the old one; `low` to
    `high` is its 95 % interval, if there is one. `before` is certainly at the old level, `after` at
    the new one."""

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
    """A stored suspicion: its day, its direction, and its outcome."""

    id: int
    trigger: Trigger
    number: int
    ratio: float
    state: State


@dataclass(frozen=True, kw_only=True)
class SuspicionUpdate:
    """A change to the stored ones: open one (`known` None), update one, or mark one as passed
    (`found` None)."""

    known: int | None
    found: Suspicion | None


def suspect(
    series: Series, baseline: int | None = None, found: Detection | None = None
) -> tuple[Suspicion, ...]:
    """Suspect shifts and odd ends of a series' history, versions that came with a change, and
    drift, in the order of nights.

    `baseline` is the day from which people accepted the level; earlier changes are not suspected
    again. None = the first night. `found` is the result of `detect_shifts`, if already known.
    """
    found = found or detect_shifts(series.values, series.numbers)
    suspicions = [
        replace(
            _place(series, each.index, "shift", each.ratio, "the nights are at a new level"),
            before=series.nights[max(0, each.index - 1 - UNSURE_NIGHTS)],
            after=series.nights[min(len(series.nights) - 1, each.index + UNSURE_NIGHTS)],
            low=each.low,
            high=each.high,
        )
        for each in found.shifts
    ]
    suspicions += [
        _place(series, each.index, "edge", each.ratio, each.reason) for each in found.edges
    ]
    near = SAME_SHIFT_NIGHTS
    for event in _suspect_versions(series):
        if not any(abs(event.since.number - each.since.number) <= near for each in suspicions):
            suspicions.append(event)
    if baseline is not None:
        suspicions = [
            each for each in suspicions if each.since.number > baseline + SAME_SHIFT_NIGHTS
        ]
    if not suspicions:
        suspicions = _suspect_drift(series, baseline)
    return tuple(sorted(suspicions, key=lambda each: each.since.number))


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
    """Recent nights with a new environment that changed the median by at least 2 %."""
    found = []
    logs = np.log(series.values)
    for index in range(max(FEWEST_BEFORE, len(logs) - VERSION_NIGHTS), len(logs)):
        changed = _name_change(series.nights[index - 1], series.nights[index])
        before = logs[max(0, index - VERSION_NIGHTS) : index]
        move = float(np.median(logs[index:]) - np.median(before))
        if changed and abs(move) >= VERSION_MOVE:
            reason = f"{changed} came with a change of {math.expm1(move):+.1%}"
            found.append(_place(series, index, "version", math.exp(move), reason))
    return found


def _suspect_drift(series: Series, baseline: int | None) -> list[Suspicion]:
    """Compare the last nights with an anchor, which stays in place however slowly the level drifts:
    the baseline, a year ago, or the last release. Reports the largest change."""
    first = 0
    if baseline is not None:
        first = next((i for i, n in enumerate(series.nights) if n.number >= baseline), 0)
    logs = np.log(series.values)
    last = float(np.median(logs[-LEVEL_NIGHTS:]))
    found: list[tuple[float, int, str]] = []
    for index, anchor in _list_anchors(series, first):
        if index >= first and len(logs) - index >= 2 * LEVEL_NIGHTS:
            move = last - float(np.median(logs[index:][:LEVEL_NIGHTS]))
            found.append((move, index, anchor))
    move, index, anchor = max(found, key=lambda each: abs(each[0]), default=(0.0, 0, ""))
    if abs(move) < DRIFT:
        return []
    drifted = Suspicion(
        trigger="drift",
        before=series.nights[index],
        since=series.nights[index],
        after=series.nights[-1],
        ratio=math.exp(move),
        reason=f"the level drifted by {math.expm1(move):+.1%} since {anchor}",
    )
    return [drifted]


def _list_anchors(series: Series, first: int) -> list[tuple[int, str]]:
    """Nights to measure drift from. A year ago means the first night of that quarter: an anchor
    that moved each night would raise the same suspicion again."""
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
    """The changes to a series' stored suspicions, given its current ones.

    An answered suspicion stays so, unless more nights turned an edge into a shift. An open one that
    the history no longer shows has passed.
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
    """A suspicion's priority: the change of the log ratio, how many of its trigger's decided
    suspicions were confirmed, and the seconds of one start of its duel."""

    id: int
    log_ratio: float
    num_confirmed: int
    num_answered: int
    start_s: float

    @property
    def expected_value(self) -> float:
        """Expected confirmed change per second of measuring. The probability is Laplace's rule of
        succession, so a trigger without decided suspicions has one half."""
        chance = (self.num_confirmed + 1) / (self.num_answered + 2)
        return chance * abs(self.log_ratio) / self.start_s


def rank_by_priority(priorities: Iterable[Priority]) -> list[int]:
    """Ids by priority, the highest first; of equal ones the older first."""
    return [
        each.id for each in sorted(priorities, key=lambda each: (-each.expected_value, each.id))
    ]
