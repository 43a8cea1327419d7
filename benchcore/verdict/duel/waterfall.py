"""The gain of each arm of a waterfall over the one before it, and of all together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchcore.verdict.duel.ratios import ContenderTimes, Exclusion, Ratio, judge_duel


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The speedup over another arm: factors, `low` to `high` is a 95 % interval over starts.

    None = not measured, or void; `reason` is why.
    """

    factor: float | None
    low: float | None
    high: float | None
    verdict: str
    reason: str
    num_starts: int


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """Each arm's gain over the one before it (the first has none), and the last torch arm's gain
    over the first: as measured, and as the product of the single gains."""

    gains: tuple[Gain | None, ...]
    whole: Gain | None
    product: float | None


def build_waterfall(
    sides: Sequence[ContenderTimes], exclusions: Sequence[Exclusion] = ()
) -> Waterfall:
    """From the arms in order, JAX last. Each pair is judged over its shared starts."""
    first: list[Gain | None] = [None] if sides else []
    gains = [*first, *(_gain(b, a, exclusions) for a, b in pairwise(sides))]
    of_torch = [side for side in sides if side.framework == "torch"]
    whole = _gain(of_torch[-1], of_torch[0], exclusions) if len(of_torch) > 1 else None
    factors = [each.factor if each else None for each in gains[1 : len(of_torch)]]
    known = [factor for factor in factors if factor is not None]
    complete = bool(known) and len(known) == len(factors)
    return Waterfall(
        gains=tuple(gains), whole=whole, product=math.prod(known) if complete else None
    )


def _gain(this: ContenderTimes, before: ContenderTimes, exclusions: Sequence[Exclusion]) -> Gain:
    """The ratio of this arm against the one before it; across frameworks `this` is JAX."""
    (ratio,) = judge_duel([this, before], exclusions)
    assert ratio.a == this.name, f"wanted {this.name!r} as the first side, got {ratio.a!r}"
    return Gain(
        factor=_factor(ratio.log_ratio) if ratio.counts else None,
        low=_factor(ratio.low) if ratio.counts else None,
        high=_factor(ratio.high) if ratio.counts else None,
        verdict=_direction(ratio),
        reason=ratio.reason,
        num_starts=ratio.num_starts,
    )


def _factor(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else math.exp(log_ratio)


def _direction(ratio: Ratio) -> str:
    if ratio.verdict != "different" or ratio.log_ratio is None:
        return ratio.verdict
    return "faster" if ratio.log_ratio > 0 else "slower"
