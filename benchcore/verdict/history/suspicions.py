"""Suspected changes of a series, and which of them to confirm first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

import numpy as np

from benchcore.names import format_percent, format_signed
from benchcore.verdict.history.conditions import (
    ConditionChange,
    describe_changes,
    find_new_conditions,
)
from benchcore.verdict.history.detect import Detection, Shift, detect_series
from benchcore.verdict.history.growth import Growth, OpenChange, find_drift, find_step
from benchcore.verdict.history.levels import measure_spread
from benchcore.verdict.history.series import METHOD_CONDITION, STEP_TIME, Night, Series
from benchcore.verdict.history.thresholds import (
    DRIFT_DEVIATIONS,
    EXCLUDED_ALPHA,
    LASTING_NIGHTS,
    LEVEL_NIGHTS,
    SAME_SHIFT_NIGHTS,
    UNSURE_NIGHTS,
    VERSION_ALPHA,
    VERSION_BEFORE,
    VERSION_NIGHTS,
)
from benchcore.verdict.samples import t_quantile

Trigger = Literal["shift", "edge", "version", "condition", "drift", "bridge"]
"""A new level in the history; outliers in the last nights; a change that came with a new
environment, or with a new condition such as a driver; small changes that add up since an anchor;
a lasting condition that moved two environments which stayed the same."""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """The series is at a new level from night `since` on, `ratio` times the old one; `low` to
    `high` is its 95 % interval, if there is one. `before` is certainly at the old level, `after` at
    the new one. `grows` is the day to which it was confirmed before, if it goes on."""

    trigger: Trigger
    before: Night
    since: Night
    after: Night
    ratio: float
    low: float | None = None
    high: float | None = None
    reason: str
    grows: int | None = None


def suspect(
    series: Series,
    baseline: int | None = None,
    found: Detection | None = None,
    explained: Sequence[tuple[int, int]] = (),
    growing: Sequence[OpenChange] = (),
) -> tuple[Suspicion, ...]:
    """Suspect shifts and edges of a series' history, versions and conditions that came with a
    change, and drift, in the order of nights. A reason names the conditions that changed with it.

    `baseline` is the day from which people accepted the level; earlier changes are not suspected
    again, nor are those just after it, unless they came with another environment. None = the first
    night. `found` is the result of `detect_series`, if already known.
    `explained` are the days that confirmed suspicions and returns compared, before and after: a
    release between them is not suspected again. Drift is only suspected since the last of them, and
    without another suspicion since then. Of these changes the ones that are `growing` may go on:
    such a suspicion compares the nights before the change with the last ones. A release in whose
    night there is an edge is that edge's: a shift just before it does not compare it, too.
    """
    found = found or detect_series(series)
    shifts = [_suspect_shift(series, each) for each in found.shifts]
    edges = [_place(series, each.index, "edge", each.ratio, each.reason) for each in found.edges]
    releases = series.list_releases()
    conditions = find_new_conditions([night.conditions for night in series.nights])
    changes = [row for row in range(len(conditions)) if row in releases or conditions[row]]
    known = [row for row in changes if _is_explained(series.nights[row].number, explained)]
    at_edges = [row for row in changes if any(row == each.index for each in found.edges)]
    suspicions = [
        *(
            _enclose_release(series, each, changes, [*known, *at_edges], explained)
            for each in shifts
        ),
        *(_enclose_release(series, each, changes, known, explained) for each in edges),
    ]
    for event in _suspect_changes(series, changes, conditions, found):
        if series.nights.index(event.since) in known:
            continue
        if not any(_covers(each, event) for each in suspicions):
            suspicions.append(event)
    if baseline is not None:
        suspicions = [each for each in suspicions if _is_news(each, baseline)]
    confirmed = max((after for _, after in explained), default=0)
    if all(each.since.number <= confirmed + SAME_SHIFT_NIGHTS for each in suspicions):
        suspicions += _suspect_drift(series, baseline, explained, growing)
    grown = [find_step(series, each, growing, explained) for each in found.shifts if each.steps]
    suspicions += [_place_growth(series, each, "shift", "shifted") for each in grown if each]
    suspicions += _suspect_bridges(series, baseline)
    suspicions = [each for each in suspicions if _is_counted(series, each)]
    suspicions = [_add_conditions(series, each, conditions) for each in suspicions]
    return tuple(sorted(suspicions, key=lambda each: each.since.number))


def _suspect_shift(series: Series, shift: Shift) -> Suspicion:
    """A shift, or an edge while it is too new; all steps that it came in lie between its nights."""
    is_lasting = shift.index <= len(series.nights) - LASTING_NIGHTS
    trigger, reason = "shift" if is_lasting else "edge", "the nights are at a new level"
    placed = _place(series, shift.index, trigger, shift.ratio, reason)
    rows = [shift.index, *(row for row, _ in shift.steps)]
    return replace(
        placed,
        before=series.nights[max(0, min(rows) - 1 - UNSURE_NIGHTS)],
        after=series.nights[min(len(series.nights) - 1, max(rows) + UNSURE_NIGHTS)],
        low=shift.low,
        high=shift.high,
    )


def _place_growth(series: Series, grown: Growth, trigger: Trigger, verb: str) -> Suspicion:
    confirmed = next(n for n in series.nights if n.number >= grown.of.after)
    reason = f"the level {verb} by {format_signed(grown.later - 1)} since the confirmed change of "
    reason += f"{confirmed.at:%Y-%m-%d}: {format_signed(grown.ratio - 1)} in all"
    placed = _place(series, max(1, grown.since), trigger, grown.ratio, reason)
    return replace(
        placed,
        before=series.nights[grown.before],
        since=series.nights[grown.since],
        after=series.nights[grown.after],
        grows=grown.of.after,
    )


def _is_counted(series: Series, found: Suspicion) -> bool:
    """Whether one side's count also moved enough, where the metric is a count."""
    least = series.scale.smallest_count
    if least == 0.0:
        return True
    counts = np.array([night.values for night in series.nights], float)
    row = series.nights.index(found.since)
    if found.trigger == "drift":
        old, new = counts[row : row + LEVEL_NIGHTS], counts[-LEVEL_NIGHTS:]
    else:
        old, new = counts[:row][-VERSION_BEFORE:], counts[row:]
    moves = np.median(new, axis=0) - np.median(old, axis=0)
    return bool(np.abs(moves).max() >= least)


def _add_conditions(
    series: Series, found: Suspicion, conditions: Sequence[Sequence[ConditionChange]]
) -> Suspicion:
    """The same; its reason also names the conditions that are new between its nights."""
    rows = zip(series.nights, conditions, strict=True)
    between = [
        change
        for night, new in rows
        if found.before.number < night.number <= found.after.number
        for change in new
    ]
    if found.trigger in ("condition", "bridge") or not between:
        return found
    return replace(found, reason=f"{found.reason}; changed meanwhile: {describe_changes(between)}")


def _suspect_bridges(series: Series, baseline: int | None) -> list[Suspicion]:
    """The conditions that moved the level. History doesn't show these, as it continues across
    them; what a new METHOD moved is our own doing. Its night is that of its date, which may have
    been measured again."""
    found: list[Suspicion] = []
    for each in series.bridges:
        day = each.at.toordinal()
        row = next((row for row, night in enumerate(series.nights) if night.number >= day), 0)
        of_method = any(change.name == METHOD_CONDITION for change in each.changes)
        is_accepted = baseline is not None and day <= baseline
        if row == 0 or not each.applied or of_method or is_accepted:
            continue
        assert each.log_ratio is not None and each.low is not None and each.high is not None
        placed = _place(series, row, "bridge", math.exp(each.log_ratio), each.summary)
        found.append(replace(placed, low=math.exp(each.low), high=math.exp(each.high)))
    return found


def _place(series: Series, index: int, trigger: Trigger, ratio: float, reason: str) -> Suspicion:
    return Suspicion(
        trigger=trigger,
        before=series.nights[index - 1],
        since=series.nights[index],
        after=series.nights[index],
        ratio=ratio,
        reason=reason,
    )


def _is_explained(number: int, explained: Sequence[tuple[int, int]]) -> bool:
    return any(before < number <= after for before, after in explained)


def _is_news(found: Suspicion, baseline: int) -> bool:
    """Whether it is none of what people accepted with the level of that day: it began later than
    noise misplaces a change, or compares other environments that came after that day."""
    is_later = found.before.number >= baseline
    is_other = found.before.environments != found.after.environments
    return found.since.number > baseline + SAME_SHIFT_NIGHTS or (is_later and is_other)


def _covers(found: Suspicion, change: Suspicion) -> bool:
    """Whether the nights that it compares are before and after that change."""
    near = abs(change.since.number - found.since.number) <= SAME_SHIFT_NIGHTS
    return near and found.before.number < change.since.number <= found.after.number


def _enclose_release(
    series: Series,
    found: Suspicion,
    changes: Sequence[int],
    known: Sequence[int],
    explained: Sequence[tuple[int, int]],
) -> Suspicion:
    """The same, with nights further from each other to compare, so that a new environment near the
    change lies between them: noise misplaces a change by some nights. One that is `known` to have
    changed something, or not, stays outside, unless it is where the change begins; so does one that
    came after the nights which an answer to this change compared."""

    def distance(row: int) -> int:
        return abs(series.nights[row].number - found.since.number)

    ends = [after for before, after in explained if before < found.since.number <= after]
    later = [row for row in changes if ends and series.nights[row].number > max(ends)]
    near = [row for row in changes if row not in later and distance(row) <= SAME_SHIFT_NIGHTS]
    if not near:
        return _exclude(series, found, later)
    outside = [*known, *later]
    if min(near, key=distance) in known:
        return _exclude(series, found, outside)
    new = [row for row in near if row not in known]
    before, after = series.nights[min(new) - 1], series.nights[max(new)]
    widened = replace(
        found,
        before=min(found.before, before, key=lambda night: night.number),
        after=max(found.after, after, key=lambda night: night.number),
    )
    return _exclude(series, widened, outside)


def _exclude(series: Series, found: Suspicion, rows: Sequence[int]) -> Suspicion:
    """The same, with nights to compare that have no change of these rows between them, except where
    the change begins."""
    before, after = found.before, found.after
    for row in rows:
        night = series.nights[row]
        if before.number < night.number < found.since.number:
            before = night
        elif found.since.number < night.number <= after.number:
            after = series.nights[row - 1]
    return replace(found, before=before, after=after)


def _suspect_changes(
    series: Series,
    changes: Sequence[int],
    conditions: Sequence[Sequence[ConditionChange]],
    shown: Detection,
) -> list[Suspicion]:
    """Recent nights with a new environment or a new condition, whose level until the next one is
    further from the nights before than chance brings it. From the third night on also new
    environments whose nights don't exclude, at 5 % on either side, a change of step time that would
    matter as a drift: fresh starts show what noisy nights hide.

    The nights before begin at the last shift. Their spread, in which two modes count whole, makes
    the threshold; a move below `version_move` is none.
    """
    found: list[Suspicion] = []
    logs = np.log(series.values)
    shifts = [shift.index for shift in shown.shifts]
    for row in changes:
        first = max([each for each in shifts if each < row], default=0)
        end = min(each for each in [*changes, *shifts, len(logs)] if each > row)
        old, new = logs[max(first, row - VERSION_BEFORE) : row], logs[row:end]
        spread = None if row < len(logs) - VERSION_NIGHTS else measure_spread(old)
        if spread is None:
            continue
        move = float(np.median(new) - np.median(old))
        error = spread * math.sqrt(1 / len(old) + 1 / len(new))
        released = _name_change(series.nights[row - 1], series.nights[row])
        reason = f"{released or describe_changes(conditions[row])} came with a change of "
        reason += format_signed(math.expm1(move))
        if abs(move) < max(
            series.scale.version_move, t_quantile(1 - VERSION_ALPHA / 2, len(old) - 1) * error
        ):
            hidden = abs(move) + t_quantile(1 - EXCLUDED_ALPHA, len(old) - 1) * error
            is_due = released and series.key.metric == STEP_TIME and len(new) >= LASTING_NIGHTS
            if not is_due or hidden < series.scale.drift:
                continue
            reason += (
                f"; these nights don't exclude {format_percent(math.expm1(series.scale.drift))}"
            )
        trigger = "version" if released else "condition"
        found.append(_place(series, row, trigger, math.exp(move), reason))
    return found


def _suspect_drift(
    series: Series,
    baseline: int | None,
    explained: Sequence[tuple[int, int]],
    growing: Sequence[OpenChange],
) -> list[Suspicion]:
    """Compare the last nights with an anchor, which stays in place however slowly the level drifts:
    the baseline or the last confirmed change or return, a year ago, or the last release. Reports
    the largest change."""
    name, start = "its baseline", baseline
    confirmed = max((after for _, after in explained), default=None)
    if confirmed is not None and (baseline is None or confirmed > baseline):
        name, start = "the last confirmed change or return", confirmed
    first = 0
    if start is not None:
        first = next((i for i, n in enumerate(series.nights) if n.number >= start), 0)
    logs = np.log(series.values)
    last = float(np.median(logs[-LEVEL_NIGHTS:]))
    found: list[tuple[float, int, str]] = []
    for index, anchor in _list_anchors(series, first, name):
        if index >= first and len(logs) - index >= 2 * LEVEL_NIGHTS:
            then = logs[index:][:LEVEL_NIGHTS]
            move = last - float(np.median(then))
            spreads = [measure_spread(each) or 0.0 for each in (then, logs[-LEVEL_NIGHTS:])]
            if abs(move) >= DRIFT_DEVIATIONS * math.hypot(*spreads) / math.sqrt(LEVEL_NIGHTS):
                found.append((move, index, anchor))
    move, index, anchor = max(found, key=lambda each: abs(each[0]), default=(0.0, 0, ""))
    if abs(move) < series.scale.drift:
        return []
    ends = [each for each in growing if each.after == confirmed and name != "its baseline"]
    if grown := find_drift(series, math.exp(move), ends):
        return [_place_growth(series, grown, "drift", "drifted")]
    drifted = Suspicion(
        trigger="drift",
        before=series.nights[index],
        since=series.nights[index],
        after=series.nights[-1],
        ratio=math.exp(move),
        reason=f"the level drifted by {format_signed(math.expm1(move))} since {anchor}",
    )
    return [drifted]


def _list_anchors(series: Series, first: int, name: str) -> list[tuple[int, str]]:
    """Nights to measure drift from. A year ago means the first night of that quarter: an anchor
    that moved each night would raise the same suspicion again."""
    nights = series.nights
    anchors = [(first, name)]
    today = nights[-1].at.date()
    quarter = date(today.year - 1, 3 * ((today.month - 1) // 3) + 1, 1).toordinal()
    if nights[0].number <= quarter:
        year_ago = next(index for index, night in enumerate(nights) if night.number >= quarter)
        anchors.append((year_ago, "the quarter a year ago"))
    if new := series.list_releases():
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
