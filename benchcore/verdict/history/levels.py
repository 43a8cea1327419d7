"""Measure a series' level before and after a suspected change, and the spread of its nights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.history.detect import Detection, detect_shifts
from benchcore.verdict.history.series import Series
from benchcore.verdict.history.thresholds import LEVEL_NIGHTS
from benchcore.verdict.samples import robust_deviation

_FAR = 5.0
"""Robust standard deviations at which a night's distance is clipped: an outlier night counts as a
far one, and a second mode counts fully."""


@dataclass(frozen=True, kw_only=True)
class HistoryLevels:
    """The history's log(T_b / T_a) before and after the change, and the names of both sides.

    `num_before` and `num_after` nights are at these levels. `spread` is the standard deviation of a
    night about its level, including its modes; None = unknown, and nothing is concluded from
    levels.
    """

    before: float
    after: float
    a: str = "a"
    b: str = "b"
    num_before: int = 0
    num_after: int = 0
    spread: float | None = None


def measure_levels(
    series: Series,
    *,
    trigger: str,
    before: str,
    since: str,
    after: str,
    found: Detection | None = None,
) -> HistoryLevels:
    """The levels of a suspicion whose nights are these duel runs, all of them in the series.

    The old level is that of the nights since the last shift before it, and the new one lasts until
    the next shift. A drift compares the first `LEVEL_NIGHTS` nights from its anchor with the last
    ones. `found` is the result of `detect_shifts`, if already known.
    """
    found = found or detect_shifts(series.values, series.numbers)
    rows = {night.duel_run: row for row, night in enumerate(series.nights)}
    logs = np.log(series.values)
    shifts = [shift.index for shift in found.shifts]
    if trigger == "drift":
        old = logs[rows[since] : rows[since] + LEVEL_NIGHTS]
        new = logs[max(rows[since] + LEVEL_NIGHTS, len(logs) - LEVEL_NIGHTS) :]
        num_after = len(new)
    else:
        first = max((each for each in shifts if each <= rows[before]), default=0)
        end = min((each for each in shifts if each > rows[after]), default=len(logs))
        old, new = logs[first : rows[before] + 1], logs[rows[after] : end]
        num_after = end - rows[since]
    return HistoryLevels(
        before=float(np.median(old)),
        after=float(np.median(new)),
        num_before=len(old),
        num_after=num_after,
        spread=measure_spread(old),
    )


def measure_spread(logs: np.ndarray) -> float | None:
    """The standard deviation of a night about the median, both modes included, if there are two;
    outliers count as no more than `_FAR` robust deviations. None below three nights."""
    if len(logs) < 3:
        return None
    residuals = logs - np.median(logs)
    far = _FAR * robust_deviation(residuals)
    clipped = np.clip(residuals, -far, far) if far > 0 else residuals
    return math.sqrt(float(clipped @ clipped) / (len(logs) - 1))
