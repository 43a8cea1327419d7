"""Whether the nights of a series have two levels between which they go to and fro: two kinds of
nodes, or a choice that is made anew at each start."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

FEWEST_NIGHTS = 20
_LEAST_SHARE = 0.12
"""A smaller mode is a few odd nights."""
_APART = 5.0
"""Distance of both means in standard deviations within a mode. Halves of a normal distribution are
2.7 apart, and of 20 such nights 5 or more are so in 1 of 1,000."""
_LEAST_APART = math.log(1.01)
_MOST_RUNS_P = 1e-3


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Two levels of T_b / T_a relative to the series' own, which shifts moved: the nights of the
    upper one take `ratio` times as long, and are this `share` of all."""

    low: float
    high: float
    share: float

    @property
    def ratio(self) -> float:
        """Upper over lower."""
        return self.high / self.low


def find_modes(residuals: np.ndarray) -> Modes | None:
    """Two modes of logs whose levels were taken out, in the order of nights; None = there is one.

    The split of the sorted values that leaves the least squares; both parts must hold a share of
    12 % at least and lie apart by five of the standard deviations within them.
    """
    count = len(residuals)
    if count < FEWEST_NIGHTS or np.ptp(residuals) < _LEAST_APART:
        return None
    values = np.sort(residuals)
    least = math.ceil(_LEAST_SHARE * count)
    at = np.arange(least, count - least + 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    below, above = sums[at] / at, (sums[-1] - sums[at]) / (count - at)
    between = (above - below) ** 2 * at * (count - at) / count
    best = int(np.argmax(between))
    squares = float(((values - values.mean()) ** 2).sum() - between[best])
    within = math.sqrt(max(squares, 0.0) / (count - 2))
    apart = float(above[best] - below[best])
    if apart < _LEAST_APART or apart < _APART * within:
        return None
    return Modes(
        low=math.exp(float(below[best])),
        high=math.exp(float(above[best])),
        share=float((count - at[best]) / count),
    )
