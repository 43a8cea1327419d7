"""Judge training over seeds: the time to an accuracy of two sides, and whether both learn as well.

Both sides begin each seed with the same weights and see the same order of the data, so the samples
are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from benchcore.verdict.samples import ALPHA, Judgement, Verdict, judge_samples, t_quantile

FEWEST_SEEDS = 5
"""Fewer can agree, or differ, by chance: they show nothing about accuracies."""
MARGIN = 0.01
"""Accuracies within one percentage point of each other are equal."""
SHAPE_ALPHA = 0.01
"""For distributions with equal means. Strict, because the means are already tested at 5 %:
together both called equal distributions different in 4.0 to 5.2 % of 4,000 simulations each, with
5, 6, 8 and 12 seeds. A difference in spread alone is found with some 12 seeds."""
_MOST_EXACT = 12
"""Up to this many seeds every exchange of sides is tried; with more, a sample of exchanges."""
_NUM_SAMPLED = 9_999
AccuracyVerdict = Literal["equal", "different", "not shown"]


@dataclass(frozen=True, kw_only=True)
class TrainedSeed:
    """One side's training with one seed."""

    seed: int
    inputs_sha256: str | None
    """Hash of its first weights and all its batches."""
    seconds: float | None
    """Seconds of training until the target; None = it never reached it."""
    accuracy: float
    """In validation after the last epoch, 0 to 1."""
    disturbed: bool
    """Whether other processes, heat or throttling disturbed an epoch of these seconds."""


Pair = tuple[TrainedSeed, TrainedSeed]


@dataclass(frozen=True, kw_only=True)
class SideTime:
    """One side's time to the target: the geometric mean over its undisturbed seeds and its 95 %
    interval, in seconds. None, with the reason, if a seed never reached the target."""

    num_seeds: int
    num_reached: int
    num_disturbed: int
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str


@dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """How many times as fast a reached the target as b, with its 95 % interval."""

    verdict: Verdict
    reason: str
    num_seeds: int
    """Those that the ratio is over."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class AccuracyTest:
    """Whether both sides' last accuracies have one distribution.

    `difference` is the mean of a's less b's, 0.01 = one percentage point, with its 95 % interval.
    `distance` is that between the two distributions (Wasserstein's): the mean difference of the
    accuracies of each side in their order. `p` is how often exchanging the sides of some seeds
    gives distributions at least as different.
    """

    verdict: AccuracyVerdict
    reason: str
    num_seeds: int
    margin: float
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    distance: float | None = None
    p: float | None = None


def summarise_side(seeds: Sequence[TrainedSeed]) -> SideTime:
    """One side's times over its seeds. None of them is dropped without a count."""
    reached = [each for each in seeds if each.seconds is not None]
    quiet = [math.log(each.seconds) for each in reached if each.seconds and not each.disturbed]
    counts = {
        "num_seeds": len(seeds),
        "num_reached": len(reached),
        "num_disturbed": sum(each.disturbed for each in seeds),
    }
    if len(reached) < len(seeds):
        missed = len(seeds) - len(reached)
        return SideTime(**counts, reason=f"did not reach it in {missed} of {len(seeds)} seeds")
    if len(quiet) < 2:
        return SideTime(
            **counts, reason=f"was undisturbed in {len(quiet)} of {len(seeds)} seeds; 2 are needed"
        )
    mean, low, high = (math.exp(each) for each in _interval(np.array(quiet)))
    return SideTime(**counts, seconds=mean, low=low, high=high, reason="")


def judge_times(pairs: Sequence[Pair], why_not: str = "") -> TimeRatio:
    """The ratio of both sides' times, seed by seed, by Student's t over the seeds.

    There is none if a seed of either side never reached the target, because the others would be
    the easy ones, or if the pair does not count (`why_not`). Disturbed seeds are left out: what
    disturbs is independent of the ratio.
    """
    missed = sum(each.seconds is None for pair in pairs for each in pair)
    logs = [
        math.log(b.seconds / a.seconds)
        for a, b in pairs
        if a.seconds and b.seconds and not a.disturbed and not b.disturbed
    ]
    reason = why_not
    if not reason and missed:
        reason = f"{missed} of {2 * len(pairs)} trainings never reached it"
    if not reason and len(logs) < 2:
        reason = f"both sides were undisturbed in {len(logs)} of {len(pairs)} seeds; 2 are needed"
    if reason:
        return TimeRatio(verdict="unknown", reason=reason, num_seeds=len(logs))
    found: Judgement = judge_samples(np.array(logs), prefer="same")
    return TimeRatio(
        verdict=found.verdict, reason=found.reason, num_seeds=len(logs), **found.ratios
    )


def judge_accuracies(pairs: Sequence[Pair], num_val: int, margin: float = MARGIN) -> AccuracyTest:
    """Test the last accuracies of both sides, paired by seed, for one distribution.

    `equal`: the 95 % interval of the mean difference lies within the margin, and so does the
    distance between the distributions. `different`: else, if that interval excludes 0, or if
    exchanging sides hardly ever gives distributions as different. `num_val` is the number of
    examples in validation: an accuracy is not known more exactly than one of them.
    """
    counts = {"num_seeds": len(pairs), "margin": margin}
    if len(pairs) < FEWEST_SEEDS:
        reason = f"{len(pairs)} seeds on both sides, at least {FEWEST_SEEDS} are needed"
        return AccuracyTest(verdict="not shown", reason=reason, **counts)
    unlike = [a.seed for a, b in pairs if a.inputs_sha256 != b.inputs_sha256]
    if unlike:
        reason = f"both sides had different weights or data with seed {unlike[0]}"
        return AccuracyTest(verdict="not shown", reason=reason, **counts)
    a, b = np.array([[side.accuracy for side in pair] for pair in pairs]).T
    mean, low, high = _interval(a - b, least_spread=1 / (num_val * math.sqrt(6)))
    distance = float(np.abs(np.sort(a) - np.sort(b)).mean())
    p = permutation_p_value(a, b)
    verdict, reason = _decide(low, high, distance, p, margin)
    return AccuracyTest(
        verdict=verdict,
        reason=reason,
        **counts,
        a=float(a.mean()),
        b=float(b.mean()),
        difference=mean,
        low=low,
        high=high,
        distance=distance,
        p=p,
    )


def _decide(
    low: float, high: float, distance: float, p: float, margin: float
) -> tuple[AccuracyVerdict, str]:
    points = f"{100 * margin:g} percentage points"
    if max(-low, high, distance) <= margin:
        return "equal", f"95 % interval and distance lie within ±{points}"
    if low > 0 or high < 0:
        return "different", "95 % interval excludes equality"
    if p < SHAPE_ALPHA:
        return "different", f"the means may be equal, but the distributions differ (p = {p:.2g})"
    if max(-low, high) <= margin:
        return "not shown", f"distance between the distributions is above {points}"
    return "not shown", f"95 % interval is not within ±{points}, and includes equality"


def permutation_p_value(a: np.ndarray, b: np.ndarray) -> float:
    """The p-value of one distribution for paired samples: the share of all exchanges of some pairs'
    sides that give an energy distance at least as large. Exact up to 12 pairs."""
    if len(a) <= _MOST_EXACT:  # exchanging all pairs changes nothing, so the first one stays
        signs = np.array([(1, *each) for each in product((1, -1), repeat=len(a) - 1)])
    else:
        drawn = np.random.Generator(np.random.PCG64(len(a))).choice((1, -1), (_NUM_SAMPLED, len(a)))
        signs = np.vstack([np.ones((1, len(a)), int), drawn])
    apart = [np.abs(one[:, None] - other) for one, other in ((a, a), (b, b), (a, b), (b, a))]
    distances = -np.einsum("ki,ij,kj->k", signs, apart[0] + apart[1] - apart[2] - apart[3], signs)
    return float((distances >= distances[0] - 1e-9).mean())


def _interval(samples: np.ndarray, least_spread: float = 0.0) -> tuple[float, float, float]:
    """Mean and 95 % interval, by Student's t."""
    mean, spread = float(samples.mean()), max(float(samples.std(ddof=1)), least_spread)
    half = t_quantile(1 - ALPHA / 2, len(samples) - 1) * spread / math.sqrt(len(samples))
    return mean, mean - half, mean + half
