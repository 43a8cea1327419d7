"""Where the lead of a sweep changes sides, and how well that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.duel.crossing import Point, find_crossing
from benchcore.verdict.samples import t_quantile


def _point(value: float, ratio: float, within: float = 1.05) -> Point:
    low, middle, high = (math.log(ratio * each) for each in (1 / within, 1, within))
    return Point(value=value, log_ratio=middle, low=low, high=high)


@pytest.mark.parametrize("factor", [1, -1])
def test_the_lead_changes_between_two_values(factor: int) -> None:
    """T_b / T_a from 2 to 1/2 is even at the root of the product, whichever side leads first."""
    points = [_point(n, ratio**factor) for n, ratio in ((1, 4.0), (4, 2.0), (16, 0.5), (64, 0.2))]
    found = find_crossing(points[::-1])
    assert (found.before, found.after) == (("a", "b") if factor == 1 else ("b", "a"))
    assert found.value == pytest.approx(8.0)
    # The ends of the interval are even where the ratio is 1.05 times, or a 1.05th.
    shift = 4 ** (math.log(1.05) / math.log(4))
    assert found.low == pytest.approx(8.0 / shift, rel=1e-6)
    assert found.high == pytest.approx(8.0 * shift, rel=1e-6)


def test_values_without_a_shown_lead_widen_the_interval() -> None:
    points = [_point(1, 2.0), _point(4, 1.01), _point(16, 0.99), _point(64, 0.5)]
    found = find_crossing(points)
    assert found.low is not None and found.high is not None and found.value is not None
    assert 1 < found.low < 4 < found.value < 16 < found.high < 64


@pytest.mark.parametrize(
    ("ratios", "reason"),
    [
        ((2.0, 3.0, 1.0), "a leads wherever a lead is shown"),
        ((0.5, 0.3, 0.2), "b leads wherever a lead is shown"),
        ((1.0, 1.01, 0.99), "neither side is shown to be faster at any value"),
        ((2.0, 0.5, 2.0), "the lead changes sides more than once"),
        ((), "neither side is shown to be faster at any value"),
    ],
)
def test_without_one_change_there_is_no_crossing(ratios: tuple[float, ...], reason: str) -> None:
    found = find_crossing([_point(2.0**place, each) for place, each in enumerate(ratios)])
    assert (found.value, found.low, found.high, found.reason) == (None, None, None, reason)


def test_the_interval_holds_the_truth_in_95_of_100_sweeps() -> None:
    """Ratios on a straight line; each value has five starts with noise of 5 %."""
    rng, values, truth, starts = np.random.default_rng(0), np.array([1, 4, 16, 64]), 7.0, 5
    held, crossed = 0, 0
    for _ in range(2000):
        logs = 0.4 * np.log(truth / values)[:, None] + rng.normal(0, 0.05, (4, starts))
        middle = logs.mean(axis=1)
        half = t_quantile(0.975, starts - 1) * logs.std(axis=1, ddof=1) / math.sqrt(starts)
        points = [
            Point(value=float(v), log_ratio=m, low=m - h, high=m + h)
            for v, m, h in zip(values, middle, half, strict=True)
        ]
        found = find_crossing(points)
        if found.low is not None and found.high is not None:
            crossed += 1
            held += found.low <= truth <= found.high
    assert crossed > 1900
    assert held / crossed >= 0.95
