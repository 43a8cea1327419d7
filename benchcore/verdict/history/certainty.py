"""Keep only change points that stay significant when the model of the noise is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcore.verdict.history.change_points import Whitened, relocate_and_prune, thresholds

_LAGS = 6
_LAG_BIAS = 2.0
"""Fitted levels make neighbours look less correlated, by about lags * levels / nights. Twice that
is added back: half of it left 5.8 % of unchanged AR(2) series with a shift (seed 11)."""

_NEAR = 10
"""Nights on either side of a change point whose noise counts for it."""


def drop_uncertain(series: Whitened, change_points: Sequence[int], degree: int) -> list[int]:
    """Remove change points whose gain is below the threshold under a robust variance, the weakest
    first.

    `series` assumes one correlation of neighbours and the noise of whole periods. Where the noise
    comes in bursts, varies smoothly or is correlated for longer, a level's variance is larger: by
    the local variances of both sides (Welch 1947) and by the long-run variance of the residuals
    (Newey and West 1987, with Bartlett's weights). Neither makes a change point more certain.
    """
    kept = list(change_points)
    while kept:
        fitted = series.fit(kept, degree=degree)
        level = series.subtract(fitted.curve) if degree else series
        at, ends = np.array(kept), np.array([0, *kept, series.num_nights])
        gains = level.fit_jumps(ends[:-2], ends[2:], at).gain
        surplus = gains / _inflate(series, kept, degree) - thresholds(at, series.num_nights)
        weakest = int(np.argmin(surplus))
        if surplus[weakest] > 0:
            break
        del kept[weakest]
        kept = relocate_and_prune(level, kept)
    return kept


def _inflate(series: Whitened, change_points: Sequence[int], degree: int) -> np.ndarray:
    """Factor by which the variance of each jump exceeds that of the series' model, at least 1."""
    residuals = _residuals(series, change_points, degree)
    ends = np.array([0, *change_points, series.num_nights])
    return _local(residuals, ends) * long_run(residuals, len(change_points) + 1)


def _residuals(series: Whitened, change_points: Sequence[int], degree: int) -> np.ndarray:
    """Whitened residuals, scaled to a variance of one."""
    fitted = series.fit(change_points, degree=degree)
    jumps = np.concatenate([[0.0], np.cumsum(fitted.sizes)])
    lengths = np.diff([0, *change_points, series.num_nights])
    left = series.whiten(series.logs - fitted.level - fitted.curve - np.repeat(jumps, lengths))
    return left / max(float(np.sqrt(np.mean(left**2))), 1e-300)


def long_run(residuals: np.ndarray, num_levels: int) -> float:
    """Factor by which the variance of a mean of many residuals exceeds that of independent ones, at
    least 1."""
    count = len(residuals)
    lags = np.arange(1, min(_LAGS, count - 1) + 1)
    correlations = [float(np.mean(residuals[lag:] * residuals[:-lag])) for lag in lags]
    summed = 1 + 2 * float((1 - lags / (_LAGS + 1)) @ correlations)
    return max(1.0, summed + _LAG_BIAS * num_levels * _LAGS / count)


def _local(residuals: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """By how much the variance of each jump exceeds the model's, at least 1: `ends` are the first
    night, the change points, and the number of nights. A side is at least as noisy as the nights
    around the jump: a few nights show little of their own noise."""
    factors = []
    for start, at, end in zip(ends[:-2], ends[1:-1], ends[2:], strict=True):
        shares = np.array([1 / (at - start), 1 / (end - at)])
        squares = np.array([np.mean(residuals[start:at] ** 2), np.mean(residuals[at:end] ** 2)])
        near = float(np.mean(residuals[max(0, at - _NEAR) : at + _NEAR] ** 2))
        factors.append(float(shares @ np.maximum(squares, max(near, 1.0)) / shares.sum()))
    return np.array(factors)
