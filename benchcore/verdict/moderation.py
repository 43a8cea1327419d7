"""Moderate the spread of a few allocations by that of other cases of the same machine.

Smyth, "Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments", Statistical Applications in Genetics and Molecular Biology 3(1), 2004:
variances of cases scatter about a common one, as scaled inverse chi-square. How much they scatter
determines how many degrees of freedom the common one adds to a single case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchcore.verdict.samples import SpreadPrior, robust_deviation

FEWEST_CASES = 5
"""Cases that a machine needs before their spread informs another one."""
MOST_FREEDOM = 60.0
"""Degrees of freedom that other cases are worth at most: a case may still be one of its own."""
_FAR = 5.0
_ROUNDS = 5
_UNLIKE = 0.05
"""Significance at which samples spread more than their prior explains."""


def fit_spread(cases: Sequence[np.ndarray]) -> SpreadPrior | None:
    """The prior of these cases; one array of allocation means per case, of two or more.

    An allocation that is off in its case, as on a bad node, is left out: how far is off is learned
    from all cases. None for fewer than `FEWEST_CASES` cases, and where they do not spread.
    """
    means = [each for each in cases if len(each) > 1 and np.ptp(each) > 0]
    if len(means) < FEWEST_CASES:
        return None
    spread = _first_guess(means)
    kept = means
    for _ in range(_ROUNDS):
        if spread == 0.0:
            return None
        kept = [drop_far(each, _FAR * spread) for each in means]
        kept = [each for each in kept if len(each) > 1]
        if len(kept) < FEWEST_CASES:
            return None
        squares = sum(float(each.var()) * len(each) for each in kept)
        spread = math.sqrt(squares / sum(len(each) - 1 for each in kept))
    variances = np.array([float(each.var(ddof=1)) for each in kept])
    return fit_variances(variances, np.array([len(each) - 1.0 for each in kept]), MOST_FREEDOM)


def drop_far(means: np.ndarray, far: float) -> np.ndarray:
    """The allocations without one that lies further than this from the middle of the others."""
    if len(means) < 3:
        return means
    number = find_farthest(means)
    others = np.delete(means, number)
    return others if abs(means[number] - others.mean()) > far else means


def find_farthest(means: np.ndarray) -> int:
    """The allocation without which the others spread least."""
    return int(np.argmin([np.delete(means, each).var() for each in range(len(means))]))


def _first_guess(means: Sequence[np.ndarray]) -> float:
    """A spread that bears one outlier per case: of the others without the farthest one."""
    residuals = [
        others - others.mean()
        for each in means
        for others in [np.delete(each, find_farthest(each)) if len(each) > 2 else each]
    ]
    return 2 * robust_deviation(np.concatenate(residuals))


def fit_variances(variances: np.ndarray, freedom: np.ndarray, most: float) -> SpreadPrior | None:
    """The prior of these variances, each of so many degrees of freedom, by Smyth's moments of their
    logs, which an outlier hardly moves. It is worth `most` degrees of freedom at most. None for
    fewer than `FEWEST_CASES` variances above 0."""
    from scipy.special import digamma, polygamma

    positive = variances > 0
    if positive.sum() < FEWEST_CASES:
        return None
    half = freedom[positive] / 2
    logs = np.log(variances[positive]) - digamma(half) + np.log(half)
    middle = float(logs.mean())
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    worth = min(2 * _inverse_trigamma(excess), most) if excess > 0 else most
    log_variance = middle + float(digamma(worth / 2)) - math.log(worth / 2)
    return SpreadPrior(variance=math.exp(log_variance), freedom=worth)


def learn_spread(
    samples: Sequence[float], earlier: Sequence[Sequence[float]]
) -> SpreadPrior | None:
    """The prior that earlier samples of the same kind give to these; one sequence per occasion.

    An occasion's outliers belong to its spread. It is worth no more than what it was estimated
    from. None for too few occasions, and if these samples spread more than theirs explain, by an F
    test at 5 %: then something is new, and the samples must be judged alone.
    """
    from scipy.special import fdtrc

    known = [each for each in earlier if len(each) > 1]
    if len(samples) < 2 or len(known) < FEWEST_CASES:
        return None
    freedom = np.array([len(each) - 1.0 for each in known])
    variances = np.array([_variance(each) for each in known])
    prior = fit_variances(variances, freedom, float(freedom.sum()))
    if prior is None:
        return None
    ratio = float(np.var(samples, ddof=1)) / prior.variance
    unlike = fdtrc(len(samples) - 1, prior.freedom, ratio) < _UNLIKE
    return None if unlike else prior


def _variance(samples: Sequence[float]) -> float:
    """The sample variance, as `numpy.var(samples, ddof=1)`, which takes ten times as long for a few
    samples."""
    mean = sum(samples) / len(samples)
    return sum((each - mean) ** 2 for each in samples) / (len(samples) - 1)


def _inverse_trigamma(value: float) -> float:
    """The inverse of trigamma, by Newton's method on 1 / trigamma, as in Smyth's appendix."""
    from scipy.special import polygamma

    if value > 1e7:
        return 1 / math.sqrt(value)
    if value < 1e-6:
        return 1 / value
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
