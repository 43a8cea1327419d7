"""How well more devices pay: the efficiency of a step on several, with its interval."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchcore.cell.stopping import average_compilations
from benchcore.verdict.samples import ALPHA, t_quantile


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """One side of a duel: the log of its step time (any unit) in each start, and which compilation
    each start used; none given = one for all."""

    devices: int
    logs: Sequence[float]
    compilations: Sequence[Hashable | None] = field(default=())

    def list_samples(self) -> list[list[float]]:
        """The means of compilations, and the starts: each gives an interval, the wider counts."""
        return [
            average_compilations(self.logs, self.compilations or [0] * len(self.logs)),
            list(self.logs),
        ]


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """The share of the ideal speedup that was reached, 1 = all of it. `low` to `high` is its 95 %
    interval; None with fewer than two samples on a side."""

    share: float
    low: float | None
    high: float | None


def judge_efficiency(fewest: StartTimes, several: StartTimes) -> Efficiency | None:
    """T(n) n / (T(k) k) of the same work on n = `fewest` and k = `several` devices; None where one
    has no start.

    The two were measured one after the other, so their starts are unpaired samples: Welch's t on
    logs (Welch, Biometrika 34, 1947). What changed between the two duels is not in the interval.
    """
    if not fewest.logs or not several.logs:
        return None
    ideal = math.log(fewest.devices / several.devices)
    pairs = zip(fewest.list_samples(), several.list_samples(), strict=True)
    found = [(ideal + np.mean(a) - np.mean(b), _half_width(a, b)) for a, b in pairs]
    known = [(log, half) for log, half in found if half is not None]
    if len(known) < len(found):
        return Efficiency(share=math.exp(found[-1][0]), low=None, high=None)
    log, half = max(known, key=lambda each: each[1])
    return Efficiency(share=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def _half_width(a: Sequence[float], b: Sequence[float]) -> float | None:
    if min(len(a), len(b)) < 2:
        return None
    parts = [np.var(each, ddof=1) / len(each) for each in (a, b)]
    error = sum(parts)
    if error == 0:
        return 0.0
    freedom = error**2 / sum(
        part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True)
    )
    return t_quantile(1 - ALPHA / 2, float(freedom)) * math.sqrt(error)
