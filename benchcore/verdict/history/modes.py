"""Detect series that alternate between two levels: two kinds of nodes, or a choice made at each
start."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

FEWEST_NIGHTS = 20
_LEAST_SHARE = 0.12
"""A smaller mode is a few odd nights."""
_APART, _FEW = 4.0, 30.0
"""Distance of both means in standard deviations within a mode, and how much more of them few nights
take: 5.5 of 20, 4.5 of 60. Halves of a normal distribution are 2.7 apart. In simulations, noise
that is normal, heavy-tailed (t, 3) or correlated (0.6) is taken for two in 1 of 1,000 series."""
_LEAST_APART = math.log(1.01)
_FEWEST_CHANGES = 3
"""From one mode to the other: what goes once or twice is a shift, or a spell."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Two levels of a series' values, relative to its own, which shifts moved: the nights of the
    upper one are this `share` of all, and its level is `ratio` times the lower one."""

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
    12 % at least, lie apart by 5.5 (of 20 nights) to 4 (of many) of the standard deviations within
    them, and take turns.
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
    if apart < _LEAST_APART or apart < (_APART + _FEW / count) * within:
        return None
    upper = residuals > (values[at[best] - 1] + values[at[best]]) / 2
    if np.count_nonzero(np.diff(upper)) < _FEWEST_CHANGES:
        return None
    return Modes(
        low=math.exp(float(below[best])),
        high=math.exp(float(above[best])),
        share=float((count - at[best]) / count),
    )


def describe_modes(found: Modes) -> str:
    """One sentence, with the likely causes."""
    return (
        f"two levels, and nights go to and fro between them: {found.share:.0%} of nights lie "
        f"{found.ratio - 1:.1%} above the others. Two kinds of nodes, or a choice that is made "
        "anew at each start, do that; one night alone says little here"
    )
