"""The noise of a nightly series: outliers, standard deviation, and correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.history.thresholds import LEAST_NOISE
from benchcore.verdict.samples import robust_deviation

_OUTLIER = 4.5
"""Standard deviations from the median of the five nights around, beyond which a night is an
outlier."""
MOST_OUTLIERS = 0.12
"""A larger share of outliers is a second mode, and part of the noise."""
_CLIP = 3.0
MOST_CORRELATED = 0.8
"""Highest correlation of neighbouring nights that is believed: beyond it, few nights show nothing
more."""
_SD_OF_LOG = math.pi / math.sqrt(8)
"""Standard deviation of log |x| for a normal x."""
_NOISE_PENALTY = 20.0
_FEWEST_OF_A_NOISE = 12


@dataclass(frozen=True, kw_only=True)
class CleanNights:
    """The nights that determine levels, without outliers; others are clipped to 3 standard
    deviations.

    `rows` are their places in the history, `scale` the noise relative to the history's mean noise.
    No estimate of their noise is below `floor`.
    """

    rows: np.ndarray
    logs: np.ndarray
    numbers: np.ndarray
    scale: np.ndarray
    floor: float = LEAST_NOISE


def clean(logs: np.ndarray, numbers: np.ndarray, floor: float = LEAST_NOISE) -> CleanNights:
    """Leave out single outliers; two of five at one level may already be a new one."""
    scale = _relative_noise(logs)
    around = _running_median(logs, 2)
    residuals = (logs - around) / scale
    # Every night is one of its own five, so at least a fifth of the residuals are zero.
    moved = residuals[residuals != 0]
    spread = max(robust_deviation(moved), floor)
    outliers = np.abs(residuals) > _OUTLIER * spread
    if outliers.mean() >= MOST_OUTLIERS:
        outliers, clipped = np.zeros(len(logs), bool), logs
    else:
        clipped = around + scale * np.clip(residuals, -_CLIP * spread, _CLIP * spread)
    kept = np.flatnonzero(~outliers)
    return CleanNights(
        rows=kept,
        logs=clipped[kept],
        numbers=numbers[kept],
        scale=scale[kept],
        floor=floor,
    )


def _running_median(values: np.ndarray, half: int) -> np.ndarray:
    """Medians over up to `half` nights before and after, fewer at the ends."""
    middle = np.median(np.lib.stride_tricks.sliding_window_view(values, 2 * half + 1), axis=1)
    first = [np.median(values[: index + half + 1]) for index in range(half)]
    last = [np.median(values[index - half :]) for index in range(len(values) - half, len(values))]
    return np.concatenate([first, middle, last])


def _relative_noise(logs: np.ndarray) -> np.ndarray:
    """Constant over periods, which begin where the night-to-night differences change in size."""
    apart = np.abs(np.diff(logs))
    moved = apart > 0
    if moved.sum() < 2 * _FEWEST_OF_A_NOISE:
        return np.ones(len(logs))
    sizes = np.log(np.where(moved, apart, np.median(apart[moved])))
    level = np.empty(len(sizes))
    intervals = [(0, len(sizes))]
    sums = np.concatenate([[0.0], np.cumsum(sizes)])
    while intervals:
        start, end = intervals.pop()
        level[start:end] = (sums[end] - sums[start]) / (end - start)
        at = np.arange(start + _FEWEST_OF_A_NOISE, end - _FEWEST_OF_A_NOISE + 1)
        if not len(at):
            continue
        before, after = at - start, end - at
        change = (sums[at] - sums[start]) / before - (sums[end] - sums[at]) / after
        gains = (change / _SD_OF_LOG) ** 2 * before * after / (end - start)
        if gains.max() > _NOISE_PENALTY:
            best = int(at[np.argmax(gains)])
            intervals += [(start, best), (best, end)]
    return np.exp(np.append(level, level[-1]) - sizes.mean())


def estimate_noise(nights: CleanNights) -> tuple[float, float]:
    """Standard deviation and correlation of neighbours, before any level is known.

    Both use differences; a change point spoils one or two of them: squared differences over two
    nights are 1 + rho times as large as those over one.
    """
    logs = nights.logs / nights.scale
    once, twice = np.diff(logs), logs[2:] - logs[:-2]
    near = np.diff(nights.numbers) < 1.5
    near_twice = near[1:] & near[:-1]
    squares = _clipped_square(once)
    rho = 0.0
    if near_twice.sum() >= 10 and _clipped_square(once[near]) > 0:
        rho = _clipped_square(twice[near_twice]) / _clipped_square(once[near]) - 1
    rho = min(max(rho, 0.0), MOST_CORRELATED)
    return max(math.sqrt(squares / 2 / max(1 - rho, 0.15)), nights.floor), rho


def _clipped_square(values: np.ndarray) -> float:
    far = 3 * robust_deviation(values)
    if far == 0.0:  # most nights equal the one before: a coarse clock, or a constant history
        far = 2 * float(np.quantile(np.abs(values), 0.9))
    return float(np.mean(np.clip(values, -far, far) ** 2))


def refine_noise(nights: CleanNights, levels: np.ndarray, num_levels: int) -> tuple[float, float]:
    """The same two with known levels, corrected for the small correlation that few nights show."""
    residuals = (nights.logs - levels) / nights.scale
    count = len(residuals)
    deviation = math.sqrt(float(residuals @ residuals) / max(count - num_levels, 3))
    deviation = max(deviation, nights.floor)
    clipped = np.clip(residuals, -3 * deviation, 3 * deviation)
    near = np.diff(nights.numbers) < 1.5
    if not near.any() or not clipped.any():
        return deviation, 0.0
    product = float((clipped[1:] * clipped[:-1])[near].mean())
    rho = product / float((clipped**2).mean())
    rho += (num_levels + (2 + num_levels) * max(rho, 0.0)) / count
    rho = min(max(rho, 0.0), MOST_CORRELATED)
    taken = num_levels * (1 + rho) / (1 - rho)
    deviation *= math.sqrt(max(count - num_levels, 3) / max(count - taken, count / 2, 3))
    return deviation, rho
