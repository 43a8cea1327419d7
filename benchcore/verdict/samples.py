"""Judge independent samples of a log ratio: `same`, `different` or `unknown`."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np

from benchcore.names import format_percent

Verdict = Literal["same", "different", "unknown"]
Preference = Literal["same", "different", "relevant"]
"""Which verdict wins if samples show a difference too small to matter.

`same`: relevance before significance. With enough samples any two programs differ, so within the
bound the verdict is `same`. `different`: significance before relevance, as in a plain t-test; the
interval shows whether the difference matters. `relevant`: like `same`, and only what is certainly
beyond the bound is `different`.
"""

EQUIVALENCE_BOUND = 0.02
"""Contenders within 2 % of each other are the same, unless the caller sets another bound."""
ALPHA = 0.05
_SD_OF_MAD = 1.4826
_LARGEST_LOG = 700.0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """log(t_b / t_a): above 0 = a is faster. `low` to `high` is its 95 % interval, `p` the p-value
    of no difference.

    `left_out` is the index of the sample that differed from all others; None = there was none.
    """

    verdict: Verdict = "unknown"
    log_ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str
    left_out: int | None = None

    @property
    def ratios(self) -> dict[str, float | None]:
        """t_b / t_a as `ratio`, and the ends of its interval as `low` and `high`."""
        logs = {"ratio": self.log_ratio, "low": self.low, "high": self.high}
        return {name: None if log is None else math.exp(log) for name, log in logs.items()}


@dataclass(frozen=True, kw_only=True)
class SpreadPrior:
    """The variance that the machine's cases share, and the degrees of freedom that it is worth."""

    variance: float
    freedom: float

    def moderate(self, variance: float, freedom: float) -> tuple[float, float]:
        """The variance of a case under this prior, and its degrees of freedom."""
        total = self.freedom + freedom
        return (self.freedom * self.variance + freedom * variance) / total, total


_Log = TypeVar("_Log", float, float | None)


def swap_sides(log_ratio: _Log, low: _Log, high: _Log) -> tuple[_Log, _Log, _Log]:
    """The log ratio and interval of the pair (b, a), from those of (a, b). None stays None."""
    logs = (log_ratio, high, low)
    middle, left, right = (log if log is None else -log for log in logs)
    return middle, left, right


def swap_factors(factor: _Log, low: _Log, high: _Log) -> tuple[_Log, _Log, _Log]:
    """The same for factors: `swap_sides` of their logs. An end so low that it became 0 counts as
    the smallest number."""
    middle, left, right = (
        each if each is None else 1 / max(each, sys.float_info.min) for each in (factor, high, low)
    )
    return middle, left, right


def judge_samples(
    samples: np.ndarray,
    equivalence_bound: float = EQUIVALENCE_BOUND,
    *,
    prefer: Preference,
    least_spread: float = 0.0,
    noise_floor: float = 0.0,
    prior: SpreadPrior | None = None,
) -> Judgement:
    """The verdict over at least two independent log ratios, by Student's t.

    `different`: the 95 % interval excludes 0; with `relevant` the bound, which `p` is of then too.
    `same`: the 90 % interval lies within the bound (two
    one-sided tests at 5 %), where the samples' spread counts as at least `least_spread`. For both
    it counts as at least `noise_floor`. A `prior` moderates the spread: the test is then Smyth's
    moderated one.
    """
    mean, spread = float(samples.mean()), max(float(samples.std(ddof=1)), noise_floor)
    freedom, root = float(len(samples) - 1), math.sqrt(len(samples))
    if prior is not None:
        variance, freedom = prior.moderate(spread**2, freedom)
        spread = math.sqrt(variance)
    half = t_quantile(1 - ALPHA / 2, freedom) * spread / root
    one_sided = t_quantile(1 - ALPHA, freedom) * max(spread, least_spread) / root
    bound = math.log1p(equivalence_bound)
    least = bound if prefer == "relevant" else 0.0
    is_different = abs(mean) - half > least
    is_same = abs(mean) + one_sided <= bound
    verdict: Verdict = "unknown"
    width = format_percent(math.expm1(min(half, _LARGEST_LOG)), 1)
    shown = format_percent(equivalence_bound, 1)
    reason = f"95 % interval ±{width} is too wide to distinguish a difference of {shown} from none"
    if is_same and not (is_different and prefer == "different"):
        verdict, reason = "same", f"90 % interval lies within ±{shown}"
    elif is_different:
        excluded = f"±{shown}" if least else "equality"
        verdict, reason = "different", f"95 % interval excludes {excluded}"
    return Judgement(
        verdict=verdict,
        log_ratio=mean,
        low=mean - half,
        high=mean + half,
        p=_tail(max(abs(mean) - least, 0.0), spread / root, freedom),
        reason=reason,
    )


def _tail(mean: float, error: float, freedom: float) -> float:
    """The p-value of a mean so far from 0."""
    if error == 0.0:
        return float(mean == 0.0)
    return 2 * t_tail(abs(mean) / error, freedom)


@lru_cache(4096)
def t_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t. `scipy.stats.t.ppf` takes 1.5 s more to import."""
    from scipy.special import stdtrit  # 0.4 s, only where something is judged

    return float(stdtrit(freedom, share))


def t_tail(t: float, freedom: float) -> float:
    """The upper tail of Student's t, like `scipy.stats.t.sf`."""
    from scipy.special import stdtr  # as above

    return float(stdtr(freedom, -t))


def robust_deviation(residuals: np.ndarray) -> float:
    """Standard deviation from the median absolute value; up to half may be outliers."""
    return _SD_OF_MAD * float(np.median(np.abs(residuals))) if len(residuals) else 0.0
