"""Measure a series' level before and after a suspected change, and the spread of its nights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

import numpy as np

from benchcore.verdict.history.conditions import ConditionChange, list_lasting_changes
from benchcore.verdict.history.detect import Detection, detect_series
from benchcore.verdict.history.noise import MOST_CORRELATED, MOST_OUTLIERS
from benchcore.verdict.history.series import METHOD_CONDITION, Night, Series
from benchcore.verdict.history.thresholds import (
    LASTING_NIGHTS,
    LEVEL_NIGHTS,
    SAME_SHIFT_NIGHTS,
    STEP_SCALE,
    SeriesScale,
)
from benchcore.verdict.samples import robust_deviation

_FAR = 3.5
"""Robust standard deviations at which a night's distance is cut off: an outlier night counts as a
far one, and a second mode counts whole."""
_RECENT, _GROWN = 10, 1.4
"""Last nights, or all since the change if more, whose spread counts if it is this many times that
of the nights before: the noise has grown. By chance it is in 5 of 100 cases."""
CERTAIN = 4.0
"""Standard errors from the old level from which on a spell was certainly at another one. A history
has many places for a spell, so it is strict."""
KNOWN_NIGHTS = 7
"""Nights at a level that make it a known one: an incident of a few nights must not hide a change
that lasts."""
NEAR_SHARE = 1 / 3
"""A spell was at the new level if its distance from it is at most this share of the change."""
_DRIFT_DEGREE = 3
"""Degree of the curve that is taken out of a drift's nights before their correlation is measured:
a slow drift fits it, and nights that wander do not."""
_LASTING = ("shift", "drift", "bridge")
"""Triggers of a level that has lasted; after the others only a framework can be the culprit."""


@dataclass(frozen=True, kw_only=True)
class HistoryLevels:
    """The history's log(T_b / T_a) before and after the change, and the names of both sides.

    `num_before` and `num_after` nights are at these levels. `spread` is the standard deviation of a
    night about its level, with its modes; None = unknown, and nothing is concluded from levels.
    `correlation` is that of neighbouring nights. `since` holds the nights from the change on with
    the new environments, and the last one. `longest_spell` is for how many nights the series was
    near the new level before, `known` in how many it certainly was at it (0 = the level is new).
    `changes` are the conditions that divide the nights before from those since. `steps` are the
    dates and log ratios of the stages in which the change came, if several. `noun` names the
    metric, and `scale` is that of its series.
    """

    before: float
    after: float
    a: str = "a"
    b: str = "b"
    num_before: int = 0
    num_after: int = 0
    spread: float | None = None
    correlation: float = 0.0
    since: tuple[float, ...] = ()
    longest_spell: int = 0
    known: int = 0
    changes: tuple[ConditionChange, ...] = ()
    steps: tuple[tuple[date, float], ...] = ()
    noun: str = "step time"
    scale: SeriesScale = STEP_SCALE

    def without_offset(self, offset: float) -> HistoryLevels:
        """The same levels without what linked controls added to them."""
        return replace(
            self,
            before=self.before - offset,
            after=self.after - offset,
            since=tuple(each - offset for each in self.since),
        )

    def without_bridges(self, bridged: float, own: float) -> HistoryLevels:
        """The same levels with the effect of conditions put back: bridges had subtracted `bridged`
        in all, `own` of it between the level before and the one after."""
        return replace(
            self,
            before=self.before + bridged - own,
            after=self.after + bridged,
            since=tuple(each + bridged for each in self.since),
        )

    def share(self, num_nights: int) -> float:
        """The variance of the mean of this many nights in a row, as a share of one night's."""
        return min(1.0, (1 + self.correlation) / (1 - self.correlation) / num_nights)


@dataclass(frozen=True, kw_only=True)
class SuspectedNights:
    """The duel runs that a suspicion names."""

    trigger: str
    before: str
    since: str
    after: str


def measure_levels(
    series: Series,
    nights: SuspectedNights,
    found: Detection | None = None,
    moves: Sequence[tuple[int, float]] = (),
) -> HistoryLevels:
    """The levels of a suspicion whose nights are all in the series.

    The old level is that of the nights since the last shift before it, and the new one lasts until
    the next shift. A drift compares the first `LEVEL_NIGHTS` nights from its anchor with the last
    ones. `found` is the result of `detect_series`, if already known. `moves` are the days since
    which a framework moved the log ratio, as confirmed, and by how much: the machine was at a level
    before only if it was there without them.
    """
    found = found or detect_series(series)
    rows = series.list_rows()
    before, since, after = (rows[each] for each in (nights.before, nights.since, nights.after))
    logs = np.log(series.values)
    shifts = [shift.index for shift in found.shifts]
    if nights.trigger == "drift":
        first, old = since, logs[since : since + LEVEL_NIGHTS]
        begin, end = max(since + LEVEL_NIGHTS, len(logs) - LEVEL_NIGHTS), len(logs)
        new = logs[begin:end]
    else:
        first = max((each for each in shifts if each <= before), default=0)
        begin, end = since, min((each for each in shifts if each > after), default=len(logs))
        old, new = logs[first : before + 1], logs[after:end]
    steps = _list_steps(series, found, range(before + 1, end))
    middle, changed, own, earlier = measure_level(old), logs[begin:end], 0.0, logs[:since]
    if steps:  # nights between two of them were at neither level
        earlier = logs[: before + 1]
    if nights.trigger == "bridge":  # it is taken from the nights since
        own = series.nights[after].bridged - series.nights[before].bridged
        earlier = earlier + _undo_bridges(series, before)[:since]
    earlier = earlier + _list_moves(series, before, moves)[: len(earlier)]
    stages = {row for shift in found.shifts for row, _ in shift.steps}
    levels = np.split(logs, sorted({*shifts, *stages}))
    residuals = np.concatenate([each - np.median(each) for each in levels])
    if nights.trigger == "drift":  # it makes neighbouring nights similar
        curve = np.polynomial.Legendre.fit(series.numbers, residuals, _DRIFT_DEGREE)
        residuals = residuals - curve(series.numbers)
    of_after = series.nights[after].environments
    compared = [row for row in range(begin, end - 1) if series.nights[row].environments == of_after]
    measured = logs[[*compared, end - 1]]
    if nights.trigger == "bridge" and is_held(series.nights[before], series.nights[after]):
        measured = changed = new = _list_held(series.nights[before], series.nights[begin:end])
    spread = _measure_both(old, changed) if nights.trigger in _LASTING else None
    found_levels = HistoryLevels(
        before=middle,
        after=float(np.median(new)),
        num_before=len(old),
        num_after=len(changed),
        spread=spread,
        correlation=max(measure_correlation(old), measure_correlation(residuals)),
        since=tuple(measured.tolist()),
        longest_spell=find_longest_spell(
            earlier, middle, float(np.median(changed)) + own, series.list_releases()
        ),
        changes=_list_changes(series, range(first, before + 1), range(after, end)),
        steps=steps,
        scale=series.scale,
    )
    moved = replace(found_levels, after=found_levels.after + own)
    return replace(found_levels, known=find_known_level(earlier, moved))


def _list_steps(series: Series, found: Detection, nights: range) -> tuple[tuple[date, float], ...]:
    """The stages of the shift that begins within these nights, if it has several, and all are."""
    for shift in found.shifts:
        if shift.steps and all(row in nights for row, _ in shift.steps):
            return tuple(
                (series.nights[row].at.date(), math.log(size)) for row, size in shift.steps
            )
    return ()


def is_held(before: Night, after: Night) -> bool:
    """Whether the environments of the night before were measured in the night after, too: as its
    own or as a control."""
    return before.environments in (after.environments, *after.controls)


def _list_held(before: Night, nights: Sequence[Night]) -> np.ndarray:
    """The ratio of the environments of the night before in these nights, less what bridges took."""
    held = before.environments
    return np.array(
        [
            each.log_ratio if each.environments == held else each.controls[held] - each.bridged
            for each in nights
            if is_held(before, each)
        ]
    )


def _undo_bridges(series: Series, before: int) -> np.ndarray:
    """What bridges took from each night more than from row `before`: a driver that comes back
    returns to its level. Not of other METHODs, whose levels no machine has."""
    bridged, method = series.nights[before].bridged, _find_method(series, before)
    return np.array(
        [
            night.bridged - bridged if _find_method(series, row) == method else 0.0
            for row, night in enumerate(series.nights)
        ]
    )


def _list_moves(series: Series, before: int, moves: Sequence[tuple[int, float]]) -> np.ndarray:
    """What frameworks moved after each night, until row `before`."""
    numbers, until = series.numbers, series.nights[before].number
    moved = np.zeros(len(numbers))
    for day, log_ratio in moves:
        if day <= until:
            moved[numbers < day] += log_ratio
    return moved


def _find_method(series: Series, row: int) -> str | None:
    return series.nights[row].conditions.get(METHOD_CONDITION)


def _list_changes(series: Series, old: range, new: range) -> tuple[ConditionChange, ...]:
    of_old, of_new = ([series.nights[row].conditions for row in rows] for rows in (old, new))
    return tuple(list_lasting_changes(of_old, of_new))


def _measure_both(old: np.ndarray, changed: np.ndarray) -> float | None:
    """The spread of the nights before, or if it grew that of the last nights about their levels."""
    before, nights = measure_spread(old), max(_RECENT, len(changed))
    last = np.concatenate([old - np.median(old), changed - np.median(changed)])[-nights:]
    recent = measure_spread(last)
    if before is None or recent is None or recent < _GROWN * before:
        return before
    return recent


def find_longest_spell(
    logs: np.ndarray, old: float, new: float, releases: Sequence[int] = ()
) -> int:
    """The most nights in a row that were nearer to the new level than to the old one, before others
    followed; a single night neither makes nor ends a spell.

    The history's first nights are not a spell if a release, by its row, may have ended them.
    """
    spells = _list_spells(logs, old, new)
    if spells and spells[0][0] == 0:
        first_end = spells[0][1]
        if any(abs(first_end - row) <= SAME_SHIFT_NIGHTS for row in releases):
            del spells[0]
    return max((end - start for start, end in spells), default=0)


def find_known_level(logs: np.ndarray, levels: HistoryLevels) -> int:
    """The number of nights in which the series was certainly at the new level before, 0 if below
    `KNOWN_NIGHTS`. Such a change is a return. `logs` are the nights before the change.

    Certain is a spell of `LASTING_NIGHTS` or more that is `CERTAIN` standard errors off the old
    level, and over for more than `SAME_SHIFT_NIGHTS`: until then noise may split one change in two.
    """
    if levels.spread is None:
        return 0
    known = 0
    for start, end in _list_spells(logs, levels.before, levels.after):
        count, level = end - start, float(np.median(logs[start:end]))
        error = levels.spread * math.sqrt(levels.share(count))
        is_certain = abs(level - levels.before) >= CERTAIN * error
        is_near = abs(level - levels.after) <= NEAR_SHARE * abs(levels.after - levels.before)
        is_over = len(logs) - end > SAME_SHIFT_NIGHTS
        if count >= LASTING_NIGHTS and is_certain and is_near and is_over:
            known += count
    return known if known >= KNOWN_NIGHTS else 0


def _list_spells(logs: np.ndarray, old: float, new: float) -> list[tuple[int, int]]:
    """Spells as rows (from, to before): consecutive nights nearer to the new level than to the old
    one, by medians of three nights. The last nights are no spell, as others must follow it."""
    if len(logs) < 5 or old == new:
        return []
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(logs, 3), axis=1)
    near = (smooth - (old + new) / 2) * (new - old) > 0
    ends = [0, *(np.flatnonzero(np.diff(near)) + 1).tolist()]
    # A median has the row of its middle night; the first night belongs to the first median.
    return [(start + (start > 0), end + 1) for start, end in pairwise(ends) if near[start]]


def measure_spread(logs: np.ndarray) -> float | None:
    """The standard deviation of a night about the median, both modes included, where one exists;
    single outliers count as no more than `_FAR` robust deviations. None below three nights."""
    if len(logs) < 3:
        return None
    residuals = _clip(logs - np.median(logs))
    return math.sqrt(float(residuals @ residuals) / (len(logs) - 1))


def measure_level(logs: np.ndarray) -> float:
    """The mean of the nights, in which single outliers count as no more than `_FAR` deviations."""
    middle = float(np.median(logs))
    return middle + float(_clip(logs - middle).mean())


def _clip(residuals: np.ndarray) -> np.ndarray:
    far = _FAR * robust_deviation(residuals)
    return (
        residuals
        if np.mean(np.abs(residuals) > far) >= MOST_OUTLIERS
        else residuals.clip(-far, far)
    )


def measure_correlation(logs: np.ndarray) -> float:
    """Correlation of neighbouring nights about their median, clipped as for the spread; 0 if it is
    below what chance shows among this many nights."""
    clipped = _clip(logs - np.median(logs))
    squares = float(clipped @ clipped)
    if len(logs) < 3 or squares == 0.0:
        return 0.0
    found = float(clipped[1:] @ clipped[:-1]) / squares
    return min(found, MOST_CORRELATED) if found > 1 / math.sqrt(len(logs)) else 0.0
