"""The error rates of our own verdicts, from calibration runs with a known answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import numpy as np

from benchcore.verdict.confirmation.decide import (
    ALPHA,
    LOOKS,
    Finding,
    Start,
    decide,
)
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.samples import t_quantile

CELLS = ("a_old", "a_new", "b_old", "b_new", "control")
"""The cells of a run's start, in the order of its contenders."""
STARTS = LOOKS[0]
"""Starts of a complete run: as many as at a confirmation's first look."""
FEWEST_STARTS = 3
"""Starts that a run with missed nights needs to be judged."""
FEWEST_RUNS = 10
"""With fewer runs a rate is reported as not yet meaningful."""
FEWEST_FREEDOM = 8
"""Starts minus nights; with less, a series' spread is unknown."""
POWER = 0.8
_NO_SPREAD = 1e-9


@dataclass(frozen=True, kw_only=True)
class CalibrationRun:
    """Fresh starts of both sides against themselves. `slowed` is the side whose new cell did
    `percent` more work; None = neither, so every alarm is false."""

    number: int
    title: str
    device: str
    slowed: Literal["a", "b"] | None
    percent: int
    names: tuple[str, str]
    starts: tuple[Start, ...]


@dataclass(frozen=True, kw_only=True)
class CalibrationOutcome:
    """A calibration run, judged by the functions that judge a suspicion."""

    run: CalibrationRun
    finding: Finding

    @property
    def percent(self) -> int:
        """Per cent of more work of a side; 0 = nothing was changed."""
        return self.run.percent if self.run.slowed else 0

    @property
    def alarm(self) -> bool:
        """Whether it would have become an event."""
        return self.finding.verdict == "confirmed"

    @property
    def effect(self) -> float | None:
        """Measured log(T_new / T_old) of the slowed side."""
        side = self.run.slowed and getattr(self.finding, self.run.slowed)
        return side.log_ratio if side else None

    @property
    def found(self) -> bool:
        """Whether an injected slow-down became an event, with any culprit."""
        return self.alarm and self.effect is not None and self.effect > 0

    @property
    def right(self) -> bool:
        """Whether the event's culprit is exactly the slowed side."""
        return self.found and self.finding.culprit == self.run.slowed


class JudgedRun(Protocol):
    """What rates need of a run: a `CalibrationOutcome`, or one that was judged before."""

    @property
    def percent(self) -> int:
        """Per cent of more work of a side; 0 = nothing was changed, so every alarm is false."""
        ...

    @property
    def alarm(self) -> bool:
        """Whether it would have become an event."""
        ...

    @property
    def found(self) -> bool:
        """Whether an injected slow-down became an event, with any culprit."""
        ...

    @property
    def right(self) -> bool:
        """Whether the event's culprit is exactly the slowed side."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`hits` of `total` runs, and the exact (Clopper-Pearson) 95 % interval of the share; None = no
    run."""

    hits: int
    total: int
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """The share of hits; None = no run."""
        return self.hits / self.total if self.total else None

    @property
    def too_few(self) -> bool:
        """Whether there are too few runs for a meaningful share."""
        return self.total < FEWEST_RUNS


def judge_run(run: CalibrationRun) -> CalibrationOutcome:
    """Judge all its starts in one look, at the level of a confirmation's looks together."""
    levels = HistoryLevels(before=0.0, after=0.0, a=run.names[0], b=run.names[1])
    (finding,) = decide([(run.starts, levels)], final=True, num_looks=1)
    return CalibrationOutcome(run=run, finding=finding)


def count(hits: Iterable[bool]) -> Rate:
    """The share of True values."""
    from scipy.special import betaincinv  # `scipy.stats.binomtest` takes 1.5 s more to import

    given = list(hits)
    found, missed = sum(given), len(given) - sum(given)
    if not given:
        return Rate(hits=0, total=0, low=None, high=None)
    low = float(betaincinv(found, missed + 1, 0.025)) if found else 0.0
    high = float(betaincinv(found + 1, missed, 0.975)) if missed else 1.0
    return Rate(hits=found, total=len(given), low=low, high=high)


def compute_rates(outcomes: Sequence[JudgedRun]) -> dict[str, Rate]:
    """Rates by name: false alarms, detected slow-downs per size, true alarms, and alarms with the
    right culprit."""
    of_size = {
        f"+{percent} % found": [each for each in outcomes if each.percent == percent]
        for percent in sorted({each.percent for each in outcomes} - {0}, reverse=True)
    }
    alarms = [each for each in outcomes if each.alarm]
    return {
        "false alarms": count(each.alarm for each in outcomes if not each.percent),
        **{name: count(each.found for each in of_one) for name, of_one in of_size.items()},
        "alarms that were right": count(each.found for each in alarms),
        "right culprit": count(each.right for each in outcomes if each.found),
    }


def find_smallest_visible(
    nights: Iterable[Sequence[float]], num_starts: int = STARTS
) -> float | None:
    """The smallest log ratio that `num_starts` starts detect with a power of 80 % at level `ALPHA`.

    `nights` has the log ratios of each night's starts; only starts of one night are compared. None
    = too few to estimate the spread of starts.
    """
    variance = _pool_variance(nights)
    if variance is None or variance <= _NO_SPREAD**2:  # exactly equal starts are not independent
        return None
    return math.sqrt(variance / num_starts) * _find_visible_shift(num_starts)


@cache
def _find_visible_shift(num_starts: int) -> float:
    """The smallest shift, in standard errors, that is found with the power `POWER`. Cached, as each
    series of a page needs the same one."""
    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if _find_power(middle, num_starts) > POWER else (middle, high)
    return high


def find_fewest_starts(spread: Spread, shift: float) -> int | None:
    """The fewest starts that detect a log ratio of `shift` with a power of 95 %; None = more than
    100. Never fewer than a confirmation's first look makes."""
    in_errors = shift / max(spread.starts, _NO_SPREAD)
    enough = (
        num for num in range(STARTS, 101) if _find_power(in_errors * math.sqrt(num), num) >= 0.95
    )
    return next(enough, None)


def _find_power(shift: float, num_starts: int) -> float:
    """The power of a two-sided t-test at a shift in standard errors."""
    from scipy.special import nctdtr  # as above

    critical = t_quantile(1 - ALPHA / 2, num_starts - 1)
    missed = float(nctdtr(num_starts - 1, shift, critical))
    return 1.0 if math.isnan(missed) else 1.0 - missed  # it has no value far from 0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviations of log ratios: of the starts of one night, and of the nights beyond what
    their starts explain (None = fewer than three nights)."""

    starts: float
    nights: float | None


def measure_spread(nights: Iterable[Sequence[float]]) -> Spread | None:
    """From the log ratios of each night's starts; None = too few starts. The variance between
    nights is the analysis of variance's: their means' less what the starts give to it."""
    kept = [night for night in nights if len(night) > 1]
    variance = _pool_variance(kept)
    if variance is None:
        return None
    if len(kept) < FEWEST_STARTS:
        return Spread(starts=math.sqrt(variance), nights=None)
    means = np.array([sum(night) / len(night) for night in kept])
    explained = variance * float(np.mean([1 / len(night) for night in kept]))
    beyond = max(0.0, float(means.var(ddof=1)) - explained)
    return Spread(starts=math.sqrt(variance), nights=math.sqrt(beyond))


def _pool_variance(nights: Iterable[Sequence[float]]) -> float | None:
    """The variance of starts around the mean of their night; None = too few starts. A night has so
    few that plain numbers take less time than arrays."""
    squares, freedom = 0.0, 0
    for night in nights:
        if len(night) > 1:
            centre = sum(night) / len(night)
            squares += sum((each - centre) ** 2 for each in night)
            freedom += len(night) - 1
    return squares / freedom if freedom >= FEWEST_FREEDOM else None
