"""Confirmed changes that go on: their level moves further the same way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.history.detect import Shift
from benchcore.verdict.history.series import Series
from benchcore.verdict.history.thresholds import (
    LASTING_NIGHTS,
    LEVEL_NIGHTS,
    SAME_SHIFT_NIGHTS,
    UNSURE_NIGHTS,
)


@dataclass(frozen=True, kw_only=True)
class OpenChange:
    """A confirmed change that may go on, as its event is open: the days that it compared, and its
    new level over the old one. Of a drift also the day of the anchor that it was measured from."""

    before: int
    after: int
    ratio: float
    anchor: int | None = None


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A change as a whole, from the nights before it on: the rows of the nights to compare, and the
    new level over the old one, in all and since it was confirmed."""

    before: int
    since: int
    after: int
    ratio: float
    later: float
    of: OpenChange


def find_step(
    series: Series,
    shift: Shift,
    changes: Sequence[OpenChange],
    explained: Sequence[tuple[int, int]] = (),
) -> Growth | None:
    """The whole of a shift that came in several steps, some of them after it was confirmed, once
    the last step has lasted. A later step does not belong to it if another change explains it, such
    as a confirmed release; `explained` are the days that such changes compared."""
    rows = {night.number: row for row, night in enumerate(series.nights)}
    for each in changes:
        before, after = rows.get(each.before), rows.get(each.after)
        if before is None or after is None or (shift.ratio > 1) != (each.ratio > 1):
            continue
        known = [step for step in shift.steps if before < step[0] <= after]
        later = [step for step in shift.steps if step[0] > after]
        others = [days for days in explained if days[0] not in (days[1], each.before)]
        if any(_is_near(series.nights[row].number, others) for row, _ in later):
            continue
        last = len(series.nights) - LASTING_NIGHTS
        if known and later and later[-1][0] <= last:
            return Growth(
                before=before,
                since=later[-1][0],
                after=min(len(series.nights) - 1, later[-1][0] + UNSURE_NIGHTS),
                ratio=math.prod(size for _, size in shift.steps),
                later=math.prod(size for _, size in later),
                of=each,
            )
    return None


def _is_near(number: int, explained: Sequence[tuple[int, int]]) -> bool:
    """Whether a step of that day may belong to one of these changes. Noise misplaces a step by some
    nights."""
    near = SAME_SHIFT_NIGHTS
    return any(before - near < number <= after + near for before, after in explained)


def find_drift(series: Series, later: float, changes: Sequence[OpenChange]) -> Growth | None:
    """The last of these changes as a whole, if a drift of `later` continues it."""
    change = max(changes, key=lambda each: each.after, default=None)
    rows = {night.number: row for row, night in enumerate(series.nights)}
    if change is None or change.before not in rows or (later > 1) != (change.ratio > 1):
        return None
    before = rows[change.before]
    since = max(0, before + 1 - LEVEL_NIGHTS)
    if change.anchor is not None:
        since = rows.get(change.anchor, before)
    logs = np.log(series.values)
    move = float(np.median(logs[-LEVEL_NIGHTS:]) - np.median(logs[since:][:LEVEL_NIGHTS]))
    if move * math.log(later) <= 0:
        return None
    return Growth(
        before=before,
        since=since,
        after=len(logs) - 1,
        ratio=math.exp(move),
        later=later,
        of=change,
    )
