"""Judge paired timings from several allocations. Each allocation is one sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchcore.verdict.moderation import find_farthest
from benchcore.verdict.samples import (
    EQUIVALENCE_BOUND,
    Judgement,
    Preference,
    SpreadPrior,
    judge_samples,
    robust_deviation,
    t_tail,
)

_FAR = 5.0
"""Standard deviations from its allocation's mean beyond which a pair is an outlier. With a known
deviation, one in two million clean pairs would be; it is estimated from as few as a dozen pairs."""
_MOST_CENTRES = 32
_FEWEST_FOR_SPREAD = 6
_FEWEST_TO_SPARE_ONE = 5
_FEWEST_WITH_PRIOR = 3
_OUTLIER_ALPHA = 1e-3
"""Significance at which one allocation counts as different from the others and is left out."""


def judge_allocations(
    allocations: Sequence[np.ndarray],
    equivalence_bound: float = EQUIVALENCE_BOUND,
    *,
    prefer: Preference = "different",
    prior: SpreadPrior | None = None,
    noise_floor: float = 0.0,
) -> Judgement:
    """Test whether b is slower than a: one array of log(t_b / t_a) per allocation.

    Allocations differ by more than their pairs do (memory layout, autotuning, the node), so
    Student's t uses one mean per allocation. A pair far from its allocation's median is an outlier
    and is left out. With five or more allocations, one that differs from the others is left out
    too.

    A significant difference is `different`, however small, unless `prefer` is `same`. Three
    allocations can agree by chance, so for `same` the spread between them counts as at least half
    the bound.

    `prior` is what other cases of the same machine show of the spread
    (`benchcore.verdict.moderation`): the t-test is moderated by it, and of three allocations one
    can already be left out. Amounts that may agree to the last digit have a `noise_floor`: the
    spread counts as at least that.
    """
    kept = [number for number, pairs in enumerate(allocations) if len(pairs)]
    if not kept:
        return Judgement(reason="no pair in any allocation")
    means = locate([np.asarray(allocations[number], float) for number in kept])
    mean = float(means.mean())
    if len(kept) == 1:
        return Judgement(
            log_ratio=mean,
            reason="one allocation only raises a suspicion: its pairs are not independent starts",
        )
    outlier = _find_outlier(means, prior)
    left_out = None if outlier is None else kept[outlier]
    if outlier is not None:
        means = np.delete(means, outlier)
        mean = float(means.mean())
    spread = float(means.std(ddof=1))
    if not noise_floor and spread <= 1e-9 * max(abs(mean), 1e-3):
        return Judgement(
            log_ratio=mean,
            reason="the allocations agree to the last digit, so they are not independent starts",
            left_out=left_out,
        )
    found = judge_samples(
        means,
        equivalence_bound,
        prefer=prefer,
        least_spread=math.log1p(equivalence_bound) / 2,
        prior=prior,
        noise_floor=noise_floor,
    )
    return replace(found, left_out=left_out)


def locate(allocations: Sequence[np.ndarray]) -> np.ndarray:
    """One log ratio per allocation: the mean of its pairs without the outliers.

    The spread of pairs is estimated from all allocations together, because four pairs show too
    little. Only an allocation that is noisy throughout has a spread of its own.
    """
    residuals = [_residuals(pairs) for pairs in allocations]
    spread = robust_deviation(np.concatenate(residuals))
    if spread == 0.0:
        return np.array([np.median(pairs) for pairs in allocations])
    means = []
    for pairs, own_residuals in zip(allocations, residuals, strict=True):
        own = robust_deviation(own_residuals)
        noisy = len(pairs) >= _FEWEST_FOR_SPREAD and own > _FAR * spread
        means.append(_skip_outliers(pairs, _FAR * (own if noisy else spread)))
    return np.array(means)


def _residuals(pairs: np.ndarray) -> np.ndarray:
    """Residuals from the median, scaled up, because a few pairs lie too near to their own
    median."""
    count = len(pairs)
    return (pairs - np.median(pairs)) * count / (count - 0.8) if count > 1 else np.zeros(0)


def _skip_outliers(pairs: np.ndarray, far: float) -> float:
    """The mean around which most pairs lie within `far`.

    Least squares with each square limited to far². If two of four pairs are outliers in different
    directions, it finds the two that agree, while the median would lie between all four.
    """
    centres = np.quantile(pairs, np.linspace(0, 1, min(len(pairs), _MOST_CENTRES)))
    centres = np.append(centres, np.median(pairs))
    near = np.abs(pairs - centres[:, None]) <= far
    means = (near @ pairs)[near.any(axis=1)] / near.sum(axis=1)[near.any(axis=1)]
    costs = np.minimum((pairs - means[:, None]) ** 2, far**2).sum(axis=1)
    return float(means[np.argmin(costs)])


def _find_outlier(means: np.ndarray, prior: SpreadPrior | None) -> int | None:
    """The one allocation that the others' spread doesn't explain, if there are enough others."""
    count = len(means)
    if count < (_FEWEST_TO_SPARE_ONE if prior is None else _FEWEST_WITH_PRIOR):
        return None
    number = find_farthest(means) if prior else int(np.argmax(np.abs(means - np.median(means))))
    others = np.delete(means, number)
    variance, freedom = float(others.var(ddof=1)), len(others) - 1.0
    if prior is not None:
        variance, freedom = prior.moderate(variance, freedom)
    expected = math.sqrt(variance * (1 + 1 / len(others)))
    if expected == 0.0:
        return None
    p = 2 * t_tail(abs(means[number] - others.mean()) / expected, freedom)
    return number if count * p < _OUTLIER_ALPHA else None
