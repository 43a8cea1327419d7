"""Detect change points in a nightly series. Edges, which need more nights, are reported
separately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from benchcore.verdict.history.certainty import drop_uncertain
from benchcore.verdict.history.change_points import (
    Whitened,
    drop_spurious,
    find_change_points,
    join_jumps,
    penalty,
)
from benchcore.verdict.history.modes import Modes, find_modes
from benchcore.verdict.history.noise import CleanNights, clean, estimate_noise, refine_noise
from benchcore.verdict.history.series import Series
from benchcore.verdict.history.thresholds import (
    EDGE_DEVIATIONS,
    FEWEST_NIGHTS,
    LEAST_NOISE,
    SMALLEST_SHIFT,
)
from benchcore.verdict.samples import robust_deviation, t_quantile

_LINE_COSTS = 0.55
"""Penalty of a straight line, in change points: it has no place to choose."""
_BEND_COSTS = 7.5
_MOST_BENDS = 3
"""A drift's penalty for each degree beyond a straight line, and its largest degree."""
_NIGHTS_BEFORE = 20
"""Nights before the last one that show whether the noise is larger at present."""
_DOUBTED = 0.3
"""Correlation above which change points are tested as its cause."""
_FAR_OFF = "the last night is far from the nights before it"


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A new level that begins at row `index`; levels are geometric means, in the values' unit.

    `low` to `high` is the 95 % interval of `ratio`, after over before. `steps` are the rows and
    ratios of its stages, if it came in several.
    """

    index: int
    before: float
    after: float
    ratio: float
    low: float
    high: float
    steps: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A deviation at the end of a series that only more nights can decide."""

    index: int
    ratio: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Shifts in the order of nights. `unknown` is why the series can't be judged; empty = it was.

    `drift` is the ratio of the last night's level to the first's apart from shifts, if there is a
    drift; `modes` are two levels between which nights alternate, if there are any.
    """

    shifts: tuple[Shift, ...] = ()
    edges: tuple[Edge, ...] = ()
    drift: float | None = None
    modes: Modes | None = None
    unknown: str = ""


def detect_series(series: Series) -> Detection:
    """Detect the shifts of a series on the scale of its metric; see `detect_shifts`."""
    scale = series.scale
    return detect_shifts(series.values, series.numbers, scale.smallest, scale.noise_floor)


def detect_shifts(
    values: np.ndarray,
    nights: np.ndarray | None = None,
    smallest_shift: float = SMALLEST_SHIFT,
    noise_floor: float = LEAST_NOISE,
) -> Detection:
    """Detect the shifts of a history: `values` are positive, NaN = a night without a measurement.

    `nights` are the numbers of the nights, increasing; by default they are consecutive. Changes
    below the share `smallest_shift` are none, and no noise is taken to be below `noise_floor`.

    The logs of the values are levels plus noise. The noise of neighbours is correlated and may be
    larger in some periods, and single outliers are left out. A shift is a change point that
    explains more than its penalty, by least squares under that noise, and more than a line or a
    curve of low degree: a drift is not a shift. An outlier in the last night is a suspicion.
    """
    numbers = np.arange(len(values)) if nights is None else np.asarray(nights, float)
    rows = np.flatnonzero(~np.isnan(values))
    if len(rows) < FEWEST_NIGHTS:
        return Detection(unknown=f"wanted at least {FEWEST_NIGHTS} nights, got {len(rows)}")
    logs = np.log(values[rows])
    if np.ptp(logs) == 0.0:
        return Detection(unknown="all nights are equal to the last digit: no noise to judge by")
    centre = float(np.median(logs))
    kept = clean(logs - centre, _count_nights(numbers[rows]), noise_floor)
    smallest = math.log1p(smallest_shift)
    series = _whiten(kept)
    change_points, degree = _choose(series, smallest)
    if degree:
        series = _relearn(kept, series, change_points, degree)
        change_points, degree = _choose(series, smallest)
    change_points = drop_uncertain(series, change_points, degree)
    steps = dict[int, tuple[tuple[int, float], ...]]()
    if len(change_points) > 1:
        level = series
        if degree:
            level = series.subtract(series.fit(change_points, degree=degree).curve)
        joined = join_jumps(level, change_points)
        steps = _list_steps(level, change_points, joined, rows[kept.rows])
        change_points = joined
    shifts = _describe(series, change_points, degree, centre, rows[kept.rows])
    shifts = tuple(replace(each, steps=steps.get(each.index, ())) for each in shifts)
    drift = None
    if degree:
        curve = series.fit(change_points, degree=degree).curve
        drift = _exp(float(curve[-1] - curve[0]))
    off = _find_edge(series, change_points, degree, logs - centre, smallest)
    edges = () if off is None else (Edge(index=int(rows[-1]), ratio=_exp(off), reason=_FAR_OFF),)
    modes = find_modes(_subtract_levels(logs, numbers[rows], kept.rows[change_points], degree))
    return Detection(shifts=shifts, edges=edges, drift=drift, modes=modes)


def _exp(log: float) -> float:
    """The exponential, at most 1e304, so that values at both ends of the float range don't
    overflow."""
    return math.exp(min(log, 700.0))


def _subtract_levels(
    logs: np.ndarray, numbers: np.ndarray, change_points: np.ndarray, degree: int
) -> np.ndarray:
    """The residual of every night, outliers included, without shifts and drift."""
    left = logs - _levels(logs, change_points.tolist())
    if degree:
        left = left - np.polynomial.Legendre.fit(numbers, left, degree)(numbers)
    return left


def _count_nights(numbers: np.ndarray) -> np.ndarray:
    """Numbers of nights in units of their usual distance."""
    usual = float(np.median(np.diff(numbers)))
    return np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(numbers) / usual, 0.5))])


def _whiten(nights: CleanNights) -> Whitened:
    """The series under its own noise: with the correlation of its neighbours or, if shifts among
    few nights may cause that correlation, without; whichever explains more."""
    deviation, rho = estimate_noise(nights)
    fits = [_fit_levels(nights, deviation, rho)]
    if rho > _DOUBTED:
        fits.append(_fit_levels(nights, deviation * math.sqrt(1 - rho), 0.0))
    return min(fits, key=lambda each: each[0])[1]


def _fit_levels(nights: CleanNights, deviation: float, rho: float) -> tuple[float, Whitened]:
    """Estimate noise and levels in turn; return the residual squares plus penalties, and the
    series."""
    levels, num_levels = nights.logs, 1
    for _ in range(2):
        series = Whitened(nights.logs, nights.numbers, deviation * nights.scale, rho)
        change_points = find_change_points(series)
        levels, num_levels = _levels(nights.logs, change_points), len(change_points) + 1
        deviation, rho = refine_noise(nights, levels, num_levels)
    series = Whitened(nights.logs, nights.numbers, deviation * nights.scale, rho)
    return series.deviance(levels) + penalty(len(levels)) * num_levels, series


def _relearn(
    nights: CleanNights, series: Whitened, change_points: Sequence[int], degree: int
) -> Whitened:
    """The same series, without its drift in the noise."""
    curve = series.fit(change_points, degree=degree).curve
    levels = curve + _levels(nights.logs - curve, change_points)
    deviation, rho = refine_noise(nights, levels, len(change_points) + 1 + degree)
    return Whitened(nights.logs, nights.numbers, deviation * nights.scale, rho)


def _levels(logs: np.ndarray, change_points: Sequence[int]) -> np.ndarray:
    ends = [0, *change_points, len(logs)]
    means = [logs[start:end].mean() for start, end in pairwise(ends)]
    return np.repeat(means, np.diff(ends))


def _choose(series: Whitened, smallest: float) -> tuple[list[int], int]:
    """The change points, and the degree of a curve fitted with them, 0 = none: whichever explains
    more at a lower cost."""
    change_points = find_change_points(series)
    if not change_points or not series.can_fit(change_points):
        return drop_spurious(series, change_points, smallest), 0
    cost = penalty(series.num_nights)
    squares = series.fit(change_points, degree=0).squares
    bent = series.fit(change_points, degree=1 + _MOST_BENDS)
    is_firm = bool((bent.sizes**2 / bent.variances).min() > cost)
    if is_firm and squares - bent.squares < _LINE_COSTS * cost:
        return drop_spurious(series, change_points, smallest), 0
    found: list[tuple[float, int, list[int]]] = []
    for bends in range(_MOST_BENDS + 1):
        degree, curve_cost = 1 + bends, cost * _LINE_COSTS + _BEND_COSTS * bends
        alone = series.fit([], degree=degree)
        if found and not min(found)[2] and alone.squares + curve_cost > min(found)[0]:
            continue  # a simpler curve leaves no change points, and this one costs more
        curve = alone.curve
        for _ in range(2):
            beside = find_change_points(series.subtract(curve))
            fitted = series.fit(beside, degree=degree)
            found.append((fitted.squares + cost * len(beside) + curve_cost, degree, beside))
            curve = fitted.curve
    cheapest, degree, beside = min(found)
    if cheapest < squares + cost * len(change_points):
        return _keep_beside_curve(series, beside, degree, smallest), degree
    return drop_spurious(series, change_points, smallest), 0


def _keep_beside_curve(
    series: Whitened, change_points: Sequence[int], degree: int, smallest: float
) -> list[int]:
    left = list(change_points)
    while left:
        fitted = series.fit(left, degree=degree)
        gains = fitted.sizes**2 / fitted.variances
        gains[np.abs(fitted.sizes) < smallest] = 0.0
        weakest = int(np.argmin(gains))
        if gains[weakest] > penalty(series.num_nights):
            return drop_spurious(series.subtract(fitted.curve), left, smallest)
        del left[weakest]
    return left


def _describe(
    series: Whitened, change_points: Sequence[int], degree: int, centre: float, rows: np.ndarray
) -> tuple[Shift, ...]:
    if not change_points:
        return ()
    at, ends = np.array(change_points, int), np.array([0, *change_points, series.num_nights])
    fitted = series.fit_jumps(ends[:-2], ends[2:], at)
    levels, sizes, variances = fitted.level, fitted.size, fitted.variance
    if degree:
        whole = series.fit(change_points, degree=degree)
        sizes, variances = whole.sizes, whole.variances
        before = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])
        levels = whole.level + whole.curve[at] + before
    wide = t_quantile(0.975, max(series.num_independent - 2 * len(at) - 1, 1))
    halves = wide * np.sqrt(variances)
    return tuple(
        Shift(
            index=int(rows[point]),
            before=_exp(centre + level),
            after=_exp(centre + level + size),
            ratio=_exp(size),
            low=_exp(size - half),
            high=_exp(size + half),
        )
        for point, level, size, half in zip(at, levels, sizes, halves, strict=True)
    )


def _list_steps(
    series: Whitened, change_points: Sequence[int], joined: Sequence[int], rows: np.ndarray
) -> dict[int, tuple[tuple[int, float], ...]]:
    """By the row of each joined change point: the rows and ratios of those one way that it took the
    place of, if several."""
    ends = np.array([0, *change_points, series.num_nights])
    sizes = series.fit_jumps(ends[:-2], ends[2:], ends[1:-1]).size.tolist()
    bounds = [0, *joined, series.num_nights]
    found = dict[int, tuple[tuple[int, float], ...]]()
    for before, at, after in zip(bounds, joined, bounds[2:], strict=False):
        own = [
            (int(rows[point]), size)
            for point, size in zip(change_points, sizes, strict=True)
            if before < point < after and point not in set(joined) - {at}
        ]
        if len(own) > 1 and len({size > 0 for _, size in own}) == 1:
            found[int(rows[at])] = tuple((row, _exp(size)) for row, size in own)
    return found


def _find_edge(
    series: Whitened, change_points: Sequence[int], degree: int, logs: np.ndarray, smallest: float
) -> float | None:
    """The log ratio of the last night to its level, if it is far, by `smallest` at least."""
    since = change_points[-1] if change_points else 0
    level = series.subtract(series.fit(change_points, degree=degree).curve) if degree else series
    recent = level.logs[since:]
    middle = float(np.median(recent))
    expected = middle + float(series.logs[-1] - level.logs[-1])
    before = recent[-1 - _NIGHTS_BEFORE : -1]
    deviation = max(float(series.noise[-1]), robust_deviation(before - middle))
    off = float(logs[-1]) - expected
    is_far = abs(off) > EDGE_DEVIATIONS * deviation and abs(off) >= smallest
    return off if is_far else None
