"""Detect series that alternate between two levels: two kinds of nodes, or a choice at each
start."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchcore.names import format_percent

_FEWEST_NIGHTS = 20
_LEAST_SHARE = 0.12
"""A smaller mode is a few outliers."""
_APART, _FEW = 4.0, 30.0
"""Required distance of the two means, in standard deviations within a mode, and the surcharge for
few nights: 5.5 for 20, 4.5 for 60. The means of the halves of a normal distribution differ by 2.7.
In simulations, 1 of 1,000 series with normal, heavy-tailed (t, 3) or correlated (0.6) noise counts
as two modes."""
_LEAST_APART = math.log(1.01)
_FEWEST_CHANGES = 3
"""Changes from one mode to the other; with only one or two it is a shift or an episode."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Two levels of a series' values, relative to its level after shifts: this `share` of nights is
    at the upper one, which is `ratio` times the lower one."""

    low: float
    high: float
    share: float

    @property
    def ratio(self) -> float:
        """The upper level over the lower one."""
        return self.high / self.low


def find_modes(residuals: np.ndarray) -> Modes | None:
    """Two modes of logs with their levels subtracted, in the order of nights; None = one mode.

    Splits the sorted values by least squares. Both parts must have at least 12 % of the nights, be
    5.5 (with 20 nights) to 4 (with many) of their standard deviations apart, and alternate.
    """
    count = len(residuals)
    if count < _FEWEST_NIGHTS or np.ptp(residuals) < _LEAST_APART:
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
        f"nights alternate between two levels: {format_percent(found.share)} of nights are "
        f"{format_percent(found.ratio - 1, 1)} above the others. Likely causes: two kinds of "
        "nodes, or a random choice at each start. A single night means little here"
    )
