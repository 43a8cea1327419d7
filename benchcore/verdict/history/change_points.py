"""Find change points in a series with correlated noise, by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.history.thresholds import (
    LASTING_NIGHTS,
    RAMP_NIGHTS,
    SHIFT_MARGIN,
    SPELL_GAIN,
    SPELL_NIGHTS,
)

FEWEST = 2
"""Nights per level."""
_EDGE, _EDGE_BONUS = 8, 5.0
_FIRST_MALUS = 4.0
_WITHOUT_LAST = 0.4
_MOST_SPLITS = 200
_MOST_UNREAL = 20
_MOST_CELLS = 100_000
_MOST_DEGREES = 5
_DEGREE_COST = 4.0
"""By how much each degree of a curve beyond a straight line must reduce the squares. A real change
point reduces them more than any curve of few degrees; a bending drift doesn't."""


@dataclass(frozen=True, kw_only=True)
class JumpFit:
    """Fits of single change points: the jump in logs, its variance, and by how much it reduces the
    squares, in units of the noise: chi-square with one degree of freedom if there is no change."""

    level: np.ndarray
    size: np.ndarray
    variance: np.ndarray
    gain: np.ndarray


class Whitened:
    """A series in which each night has its prediction from the night before subtracted, in units of
    the noise.

    Neighbours have correlation `rho`, which falls to rho**gap across missing nights. `noise` is the
    standard deviation of each night. The same transform applies to what is fitted: a constant, a
    straight line, and a jump, which is complete in its night. Sums over an interval are then
    differences of running sums, so that all places of a jump are tried at once.
    """

    def __init__(self, logs: np.ndarray, nights: np.ndarray, noise: np.ndarray, rho: float) -> None:
        self._nights, self._rho, self.noise = nights, rho, noise
        gaps = np.diff(nights)
        self._predicted = np.concatenate([[0.0], rho**gaps if rho > 0 else np.zeros(len(gaps))])
        self._innovation = noise * np.sqrt(1 - self._predicted**2)
        self.logs, self.num_nights = logs, len(logs)
        self.trend = nights - nights.mean()
        self._seen, self._line = self.whiten(logs), self.whiten(self.trend)
        self._constant, self._jump = self.whiten(np.ones(len(logs))), 1 / self._innovation
        whitened = {"1": self._constant, "x": self._line, "y": self._seen}
        plain = {"1": np.ones(len(logs)), "x": self.trend, "y": logs}
        pairs = ("11", "1y", "1x", "xx", "xy")
        self._sums = {
            a + b: np.concatenate([[0.0], np.cumsum(whitened[a] * whitened[b])]) for a, b in pairs
        }
        # The first night of an interval has no predecessor: it counts unchanged.
        self._first = {a + b: plain[a] * plain[b] / noise**2 for a, b in pairs}

    @property
    def num_independent(self) -> float:
        """How many uncorrelated nights would determine a level equally well."""
        return 1 + float(np.sum((1 - self._predicted[1:]) / (1 + self._predicted[1:])))

    def whiten(self, column: np.ndarray) -> np.ndarray:
        """Transform a column of a linear model like the series."""
        before = np.concatenate([[0.0], column[:-1]])
        return (column - self._predicted * before) / self._innovation

    def deviance(self, levels: np.ndarray) -> float:
        """Minus twice the log likelihood of the series given its levels, without a constant."""
        left = self.whiten(self.logs - levels)
        return float(left @ left + 2 * np.log(self._innovation).sum())

    def subtract(self, curve: np.ndarray) -> Whitened:
        """The same series minus a curve."""
        return Whitened(self.logs - curve, self._nights, self.noise, self._rho)

    def _sum(self, which: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        return self._sums[which][end] - self._sums[which][start + 1] + self._first[which][start]

    def fit_jumps(self, start: np.ndarray, end: np.ndarray, at: np.ndarray) -> JumpFit:
        """A jump at the night `at` of the interval from `start` to before `end`, elementwise."""
        ones, seen = self._sum("11", start, end), self._sum("1y", start, end)
        after = self._sums["11"][end] - self._sums["11"][at + 1]
        jump = self._jump[at]
        squares = jump**2 + after
        crossed = jump * self._constant[at] + after
        products = jump * self._seen[at] + self._sums["1y"][end] - self._sums["1y"][at + 1]
        excess = products - crossed * seen / ones
        information = squares - crossed**2 / ones
        size = excess / information
        return JumpFit(
            level=(seen - crossed * size) / ones,
            size=size,
            variance=1 / information,
            gain=excess * size,
        )

    def line_gain(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The amount by which a straight line reduces the squares of an interval, comparable to a
        jump's gain."""
        ones, ramp = self._sum("11", start, end), self._sum("1x", start, end)
        information = self._sum("xx", start, end) - ramp**2 / ones
        excess = self._sum("xy", start, end) - ramp * self._sum("1y", start, end) / ones
        return np.where(information > 0, excess**2 / np.maximum(information, 1e-300), 0.0)

    def curve_gain(self, start: int, end: int) -> float:
        """The amount by which the best polynomial reduces them, minus the cost of its degrees."""
        powers = _powers(self.trend[start:end], min(_MOST_DEGREES, 1 + (end - start) // 10))
        columns = np.column_stack([powers, self.logs[start:end]])
        white = columns / self.noise[start:end, None]
        before = self._predicted[start + 1 : end, None] * columns[:-1]
        white[1:] = (columns[1:] - before) / self._innovation[start + 1 : end, None]
        basis, _ = np.linalg.qr(white[:, :-1])
        gains = np.cumsum((basis.T @ white[:, -1])[1:] ** 2)
        return float((gains - _DEGREE_COST * np.arange(len(gains))).max())

    def fit(self, change_points: Sequence[int], *, degree: int) -> LinearFit:
        """Fit all change points at once, together with a polynomial through the whole series."""
        places = np.arange(self.num_nights)
        powers = _powers(self.trend, degree)
        columns = [*powers.T, *((places >= step).astype(float) for step in change_points)]
        design = np.stack([self.whiten(column) for column in columns], axis=1)
        inverse = np.linalg.pinv(design.T @ design)
        found = inverse @ (design.T @ self._seen)
        residuals = self._seen - design @ found
        return LinearFit(
            level=float(found[0]),
            curve=powers[:, 1:] @ found[1 : degree + 1],
            sizes=found[degree + 1 :],
            variances=np.diag(inverse)[degree + 1 :],
            squares=float(residuals @ residuals),
        )

    def can_fit(self, change_points: Sequence[int]) -> bool:
        """Whether `fit` needs little memory and time."""
        return self.num_nights * (len(change_points) + 2) <= _MOST_CELLS


@dataclass(frozen=True, kw_only=True)
class LinearFit:
    """The level, the curve, and each change point's jump, in logs. `squares` are the residual ones,
    in units of the noise."""

    level: float
    curve: np.ndarray
    sizes: np.ndarray
    variances: np.ndarray
    squares: float


def _powers(trend: np.ndarray, degree: int) -> np.ndarray:
    """Legendre polynomials up to a degree over these nights, one column each."""
    middle, half = (trend[0] + trend[-1]) / 2, (trend[-1] - trend[0]) / 2
    return np.polynomial.legendre.legvander((trend - middle) / max(half, 1e-300), degree)


def penalty(num_nights: int) -> float:
    """The amount by which one more change point must reduce the squares: BIC's 2 log n for its jump
    and place, plus a margin tuned on simulated histories, larger if few nights estimate the
    noise."""
    wanted, freedom = SHIFT_MARGIN + 2 * math.log(num_nights), max(num_nights - 3, 1)
    return freedom * math.expm1(min(wanted / freedom, 50))


def thresholds(at: np.ndarray, num_nights: int) -> np.ndarray:
    """Lower near the end, where there are few places for a change point and a recent one deserves
    attention."""
    near = num_nights - at <= _EDGE
    bonus = _EDGE_BONUS if near.sum() == 1 else 0.0
    return penalty(num_nights) - near * bonus + np.where(at <= _EDGE, _FIRST_MALUS, 0.0)


def find_change_points(series: Whitened) -> list[int]:
    """The nights at which levels begin; each reduces the squares by more than the penalty."""
    change_points = prune(series, _propose(series))
    change_points = relocate_and_prune(series, change_points)
    while change_points and _rests_on_last_night(
        series, [0, *change_points][-2], change_points[-1]
    ):
        change_points = relocate_and_prune(series, change_points[:-1])
    return change_points


def _propose(series: Whitened) -> list[int]:
    """Propose too many places: from binary splits, windows of several widths, and the last
    nights."""
    count, enough = series.num_nights, 0.8 * penalty(series.num_nights)
    places: set[int] = set()
    intervals = [(0, count)]
    while intervals and len(places) < _MOST_SPLITS:
        start, end = intervals.pop()
        best, gain = _find_best(series, start, end)
        if gain > enough:
            places.add(best)
            intervals += [(start, best), (best, end)]
    half = 3
    while 2 * half <= count:
        at = np.arange(half, count - half + 1)
        gains = series.fit_jumps(at - half, at + half, at).gain
        if gains.max() > enough:
            places.update(at[find_peaks(gains, enough, half)].tolist())
        half *= 2
    last = np.array([count - nights for nights in range(2, _EDGE + 1) if count > 3 * nights], int)
    begun = np.maximum(last - 40, 0)
    gains = series.fit_jumps(begun, np.full_like(last, count), last).gain
    if len(last) and gains.max() > 0.8 * (penalty(count) - _EDGE_BONUS):
        places.add(int(last[np.argmax(gains)]))
    return sorted(places)


def find_peaks(gains: np.ndarray, height: float, distance: int) -> np.ndarray:
    """Peaks of at least this height, the highest within each distance; the middle of a plateau.

    Like `scipy.signal.find_peaks`, whose import takes 2 s, but also finds peaks at both ends.
    """
    padded = np.pad(gains, 1)
    ends = np.append(np.flatnonzero(np.diff(padded)), len(padded) - 1)
    begins = np.append(0, ends[:-1] + 1)
    level = padded[begins]
    inner = np.flatnonzero((level[1:-1] > level[:-2]) & (level[1:-1] > level[2:])) + 1
    peaks = (begins[inner] + ends[inner]) // 2
    peaks = peaks[padded[peaks] >= height]
    kept = np.ones(len(peaks), bool)
    for number in np.argsort(padded[peaks])[::-1]:
        if kept[number]:
            kept &= np.abs(peaks - peaks[number]) >= distance
            kept[number] = True
    return peaks[kept] - 1


def _find_best(series: Whitened, start: int, end: int) -> tuple[int, float]:
    at = np.arange(start + FEWEST, end - FEWEST + 1)
    if not len(at):
        return start, 0.0
    gains = series.fit_jumps(np.full_like(at, start), np.full_like(at, end), at).gain
    return int(at[np.argmax(gains)]), float(gains.max())


def prune(series: Whitened, change_points: Sequence[int]) -> list[int]:
    """Remove the weakest change point, as fitted between its neighbours, until all are
    significant."""
    at = np.array(change_points, int)
    while len(at):
        ends = np.concatenate([[0], at, [series.num_nights]])
        start, end = ends[:-2], ends[2:]
        surplus = series.fit_jumps(start, end, at).gain - thresholds(at, series.num_nights)
        surplus[np.minimum(at - start, end - at) < FEWEST] = -np.inf
        weakest = int(np.argmin(surplus))
        if surplus[weakest] > 0:
            break
        at = np.delete(at, weakest)
    return at.tolist()


def relocate_and_prune(series: Whitened, change_points: Sequence[int]) -> list[int]:
    """Move each change point to its best place, and remove those that aren't significant there."""
    return prune(series, _relocate(series, change_points))


def _rests_on_last_night(series: Whitened, start: int, at: int) -> bool:
    """Whether a change point near the end becomes insignificant without the last night."""
    before_last = series.num_nights - 1
    if not before_last - _EDGE < at < before_last:
        return False
    without = series.fit_jumps(np.array([start]), np.array([before_last]), np.array([at]))
    return bool(without.gain[0] < _WITHOUT_LAST * penalty(series.num_nights))


def _relocate(series: Whitened, change_points: Sequence[int]) -> list[int]:
    """Move each change point to the best place between its neighbours."""
    placed = list(change_points)
    for _ in range(2):
        for number in range(len(placed)):
            ends = [0, *placed, series.num_nights]
            best, gain = _find_best(series, ends[number], ends[number + 2])
            if gain > 0:
                placed[number] = best
    return placed


def drop_spurious(series: Whitened, change_points: Sequence[int], smallest: float) -> list[int]:
    """Remove change points of less than `smallest` in logs, and those that a straight line between
    their neighbours explains better; after each removal the others are tested again."""
    at = np.array(change_points, int)
    while len(at):
        ends = np.concatenate([[0], at, [series.num_nights]])
        fitted = series.fit_jumps(ends[:-2], ends[2:], at)
        if len(at) <= _MOST_UNREAL:
            within = zip(ends[:-2].tolist(), ends[2:].tolist(), strict=True)
            steeper = np.array([series.curve_gain(*each) for each in within]) > fitted.gain
        else:
            steeper = series.line_gain(ends[:-2], ends[2:]) > fitted.gain
        unreal = np.flatnonzero((np.abs(fitted.size) < smallest) | steeper)
        if not len(unreal):
            break
        one_by_one = len(unreal) <= _MOST_UNREAL
        gone = unreal[np.argmin(fitted.gain[unreal])] if one_by_one else unreal
        left = np.delete(at, gone).tolist()
        at = np.array(relocate_and_prune(series, left), int)
    return at.tolist()


def join_jumps(series: Whitened, steps: Sequence[int]) -> list[int]:
    """Steps one way that follow each other within `RAMP_NIGHTS` are one change, which came in
    stages. A level that is left the other way again within `SPELL_NIGHTS` is a spell of noise,
    unless both steps are far beyond the penalty; one of fewer than `LASTING_NIGHTS` always is.

    One step takes the place of such a group: the best one between its neighbours, if it is strong
    enough by itself. The last level may be short, because it has not been left yet.
    """
    joined = list(steps)
    number = 0
    while number + 1 < len(joined):
        first, second = joined[number : number + 2]
        ends = [0, *joined, series.num_nights]
        start, end = np.array(ends[number : number + 2]), np.array(ends[number + 2 : number + 4])
        fitted = series.fit_jumps(start, end, np.array([first, second]))
        if second - first >= _least_apart(series, fitted):
            number += 1
            continue
        best, _ = _find_best(series, int(start[0]), int(end[1]))
        joined = prune(series, [*joined[:number], best, *joined[number + 2 :]])
        number = 0
    return joined


def _least_apart(series: Whitened, fitted: JumpFit) -> int:
    """The nights from which on two neighbouring steps are two changes."""
    if fitted.size[0] * fitted.size[1] > 0:
        return RAMP_NIGHTS
    sure = fitted.gain.min() > SPELL_GAIN * penalty(series.num_nights)
    return LASTING_NIGHTS if sure else SPELL_NIGHTS
