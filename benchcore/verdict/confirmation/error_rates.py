"""How often our own verdicts are wrong: calibration runs with a known answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.verdict.confirmation.decide import (
    ALPHA,
    LOOKS,
    Finding,
    Start,
    decide,
)
from benchcore.verdict.history.levels import HistoryLevels

CELLS = ("a_old", "a_new", "b_old", "b_new", "control")
"""Of a trial's start, in the order of its contenders."""
STARTS = LOOKS[0]
"""Of a whole trial: as many as a confirmation begins with."""
FEWEST_STARTS = 3
"""Of a trial some of whose nights were missed, for it to be judged."""
FEWEST_RUNS = 10
"""Below, a rate says next to nothing, and is called so."""
FEWEST_FREEDOM = 8
"""Starts less their nights, below which a series' spread is not known."""
POWER = 0.8
_NO_SPREAD = 1e-9


@dataclass(frozen=True, kw_only=True)
class CalibrationRun:
    """Fresh starts of both sides against themselves. `slowed` names the side whose new cell did
    `percent` more work; None = nobody was, and whatever moves is a false alarm."""

    number: int
    title: str
    device: str
    slowed: Literal["a", "b"] | None
    percent: int
    names: tuple[str, str]
    starts: tuple[Start, ...]


@dataclass(frozen=True, kw_only=True)
class CalibrationOutcome:
    """What was made of a trial, by the very functions that judge a suspicion."""

    trial: CalibrationRun
    finding: Finding

    @property
    def alarm(self) -> bool:
        """Whether it would have become an event."""
        return self.finding.verdict == "confirmed"

    @property
    def effect(self) -> float | None:
        """log(T_new / T_old) of the side that was slowed down, as measured."""
        side = self.trial.slowed and getattr(self.finding, self.trial.slowed)
        return side.log_ratio if side else None

    @property
    def found(self) -> bool:
        """Whether an injected slow-down became an event, whomever it blames."""
        return self.alarm and self.effect is not None and self.effect > 0

    @property
    def right(self) -> bool:
        """Whether the event names the side that was slowed down, and no other."""
        return self.found and self.finding.culprit == self.trial.slowed


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`hits` of `total` trials, and the exact (Clopper and Pearson's) 95 % interval of the share;
    None = no trial."""

    hits: int
    total: int
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """None = no trial."""
        return self.hits / self.total if self.total else None

    @property
    def too_few(self) -> bool:
        """Whether the share says next to nothing yet."""
        return self.total < FEWEST_RUNS


def judge_run(trial: CalibrationRun) -> CalibrationOutcome:
    """What one look at all its starts says, at the level that a confirmation has over its looks."""
    level = HistoryLevels(before=0.0, after=0.0, a=trial.names[0], b=trial.names[1])
    (finding,) = decide([(trial.starts, level)], final=True, num_looks=1)
    return CalibrationOutcome(trial=trial, finding=finding)


def count(hits: Iterable[bool]) -> Rate:
    """The share of True among these."""
    from scipy import stats

    given = list(hits)
    if not given:
        return Rate(hits=0, total=0, low=None, high=None)
    interval = stats.binomtest(sum(given), len(given)).proportion_ci(0.95, method="exact")
    low, high = float(interval.low), float(interval.high)
    return Rate(hits=sum(given), total=len(given), low=low, high=high)


def compute_rates(outcomes: Sequence[CalibrationOutcome]) -> dict[str, Rate]:
    """Each rate under its name: of false alarms, found slow-downs by their size, alarms that were
    none, and right attributions."""
    of_size = {
        f"+{percent} % found": [each for each in outcomes if each.trial.percent == percent]
        for percent in sorted({each.trial.percent for each in outcomes} - {0}, reverse=True)
    }
    alarms = [each for each in outcomes if each.alarm]
    return {
        "false alarms": count(each.alarm for each in outcomes if each.trial.slowed is None),
        **{name: count(each.found for each in of_one) for name, of_one in of_size.items()},
        "alarms that were right": count(each.found for each in alarms),
        "right side blamed": count(each.right for each in outcomes if each.found),
    }


def find_smallest_visible(
    nights: Iterable[Sequence[float]], num_starts: int = STARTS, alpha: float = ALPHA
) -> float | None:
    """The smallest log ratio that so many starts show with a power of 80 %, at that level.

    `nights` holds the log ratios of the starts of each night, which are compared within their
    night alone. None = too few of them to know how starts spread.
    """
    from scipy import optimize, stats

    kept = [np.asarray(night, float) for night in nights if len(night) > 1]
    freedom = sum(len(night) - 1 for night in kept)
    if freedom < FEWEST_FREEDOM:
        return None
    squares = sum(float(((night - night.mean()) ** 2).sum()) for night in kept)
    error = math.sqrt(squares / freedom / num_starts)
    if error <= _NO_SPREAD:  # starts that agree to the last digit are none
        return None
    critical = stats.t.ppf(1 - alpha / 2, num_starts - 1)

    def lacks(shift: float) -> float:
        """By how much the power falls short of what is wanted, at a shift in standard errors."""
        return float(stats.nct.sf(critical, num_starts - 1, shift)) - POWER

    found = optimize.root_scalar(lacks, bracket=(0.0, 100.0))
    return error * float(found.root)
