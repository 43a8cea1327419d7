"""Where the lead changes sides along a sweep, with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Side = Literal["a", "b"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """The pair at a value of what varies: log(T_b / T_a) with its 95 % interval."""

    value: float
    log_ratio: float
    low: float
    high: float

    @property
    def leader(self) -> Side | None:
        """The side that is shown to be faster."""
        if self.low > 0:
            return "a"
        return "b" if self.high < 0 else None


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """`before` leads below the crossing and `after` above it, which is at `value`, with 95 %
    confidence from `low` to `high`. All are None where there is none, with the `reason`."""

    before: Side | None = None
    after: Side | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def find_crossing(points: Sequence[Point]) -> Crossing:
    """Find the crossing between the last value at which one side is shown to be faster, and the
    first one at which the other is.

    Between values the ratio is a straight line over the logarithm of the value, and so are the ends
    of its interval. The interval of the crossing holds every value where the ratio's interval holds
    equality. Linear in between, that is at least as wide as the interval of the interpolated
    ratio: a weighted mean of two independent ratios varies no more than the mean of their widths.
    """
    ordered = sorted(points, key=lambda each: each.value)
    shown: list[tuple[int, Side]] = [
        (index, each.leader) for index, each in enumerate(ordered) if each.leader
    ]
    turns = [(one, two) for one, two in pairwise(shown) if one[1] != two[1]]
    if not shown:
        return Crossing(reason="neither side is shown to be faster at any value")
    if not turns:
        return Crossing(reason=f"{shown[0][1]} leads wherever a lead is shown")
    if len(turns) > 1:
        return Crossing(reason="the lead changes sides more than once")
    (first, before), (last, after) = turns[0]
    between = ordered[first : last + 1]
    lows = _cross(between, lambda each: each.low)
    highs = _cross(between, lambda each: each.high)
    middle = _cross(between, lambda each: each.log_ratio)
    starts, stops = (lows, highs) if before == "a" else (highs, lows)
    return Crossing(before=before, after=after, value=middle[0], low=starts[0], high=stops[-1])


def _cross(points: Sequence[Point], read: Callable[[Point], float]) -> list[float]:
    """The values at which a line through the points is zero, in order."""
    found = []
    for one, two in pairwise(points):
        left, right = read(one), read(two)
        if left == 0 or left * right < 0:
            share = left / (left - right) if left != right else 0.0
            logs = math.log(one.value), math.log(two.value)
            found.append(math.exp(logs[0] + share * (logs[1] - logs[0])))
    return found
