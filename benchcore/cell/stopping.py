"""When a duel stops: rounds until a start is settled, starts until all pairs are.

The start is the unit of inference, or the compilation where starts belong to several. The interval
within a start only shows when more rounds are useless; the intervals over starts end the duel.

Stopping when an interval happens to be narrow favours starts that happen to agree, so the
interval then covers less than 95 %. Here the target must be met twice in a row, with and without
the latest start, and never with the fewest starts only. A false `different` stays at 5 %, because
the verdict tests for `same` first. `benchmarks/verdicts.py coverage` measures the coverage, and
`tests/benchcore/cell/test_stopping.py` simulates it. Time is independent of the ratio, so stopping
by the budget costs no coverage.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

from benchcore.protocol import DuelLimits, StoppedBy

MIN_STEPS = 50
"""Timed steps of every contender over a duel, before any other limit."""

Times = Mapping[str, Mapping[int, float]]
"""In one start, per contender: the nanoseconds per step in each round that counts."""


@dataclass(frozen=True, kw_only=True)
class FinishedStart:
    """A start that is over: its times, its duration, and whose caches each contender used."""

    times: Times
    seconds: float
    compilations: Mapping[str, int | None]
    """By contender; None = it compiled nothing."""

    def compilation_of(self, a: str, b: str) -> int | None:
        """The pair's. In one start all contenders compile with empty caches, or none does."""
        first = self.compilations.get(a)
        return self.compilations.get(b) if first is None else first


# Student's t, 97.5 %, for 1 to 10 degrees of freedom; beyond, an expansion of the normal quantile.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_Z = 1.959964


def t_975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to three digits."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3


def half_width(samples: Sequence[float]) -> float:
    """Half the 95 % interval of the mean; infinite for fewer than two samples."""
    if len(samples) < 2:
        return math.inf
    return half_width_of_mean(statistics.stdev(samples), len(samples))


def half_width_of_mean(deviation: float, count: int) -> float:
    """Half the 95 % interval of the mean of so many samples of this standard deviation; infinite
    for fewer than two."""
    return t_975(count - 1) * deviation / math.sqrt(count) if count > 1 else math.inf


def group_by_compilation(
    log_ratios: Sequence[float], compilations: Sequence[Hashable | None]
) -> list[list[float]]:
    """The starts of each compilation; one that compiled nothing (None) is a group of its own."""
    groups: dict[Hashable, list[float]] = {}
    for number, (log, compilation) in enumerate(zip(log_ratios, compilations, strict=True)):
        alone = ("start", number)
        groups.setdefault(alone if compilation is None else compilation, []).append(log)
    return list(groups.values())


def average_compilations(
    log_ratios: Sequence[float], compilations: Sequence[Hashable | None]
) -> list[float]:
    """Independent samples from starts nested in compilations: each compilation's mean.

    The variance of such means contains the one between compilations; with equally many starts in
    each, their t-interval is exact (Kalibera and Jones, Rigorous benchmarking in reasonable time,
    ISMM 2013). Few means can agree by chance, so an interval also has at least the width that the
    starts give: see `nested_half_width`. Starts of a single compilation are the samples themselves,
    and so is every start that compiled nothing (None).
    """
    if len(set(compilations)) == 1:
        return list(log_ratios)
    return [statistics.fmean(each) for each in group_by_compilation(log_ratios, compilations)]


def nested_half_width(
    log_ratios: Sequence[float], compilations: Sequence[Hashable | None]
) -> float:
    """Half the 95 % interval over starts nested in compilations: the wider one of that over the
    compilations' means and that over the starts."""
    means = average_compilations(log_ratios, compilations)
    return max(half_width(means), half_width(log_ratios))


def log_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """log(T_b / T_a) of one start, as in the verdict: the median of all pairwise means."""
    paired = _paired(a, b)
    means = [(one + other) / 2 for one, other in combinations_with_replacement(paired, 2)]
    return statistics.median(means) if means else None


def _paired(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    return [math.log(b[each] / a[each]) for each in sorted(a.keys() & b.keys())]


def wants_round(
    limits: DuelLimits, times: Times, num_rounds: int, steps: Iterable[int], seconds_left: float
) -> bool:
    """Whether a start continues with another round and its mirror, after `num_rounds` rounds.

    `times` and `steps` are those of the contenders still running: a start without any is over. The
    fewest steps per start and the fewest rounds come before every limit. They count degraded
    blocks, or on a busy machine they would never end. The interval uses only blocks that may count.
    """
    if not times:
        return False
    if num_rounds < limits.rounds or min(steps) < math.ceil(MIN_STEPS / limits.starts):
        return True
    if num_rounds >= limits.most_rounds or seconds_left <= 0:
        return False
    pairs = combinations(times.values(), 2)
    return any(half_width(_paired(a, b)) > limits.target / 2 for a, b in pairs)


def seconds_left(limits: DuelLimits, index: int, spent_s: float) -> float:
    """Time left of a start's share of the budget; the minimum starts still to come have theirs."""
    share = min(1.0, (index + 1) / limits.starts)
    return limits.budget_s * share - spent_s


def why_stop(
    limits: DuelLimits, names: Sequence[str], starts: Sequence[FinishedStart]
) -> StoppedBy | None:
    """The limit that ends a duel after these starts; None = another start.

    `names` are the contenders still in the duel. The next start must fit into the budget.
    """
    if len(starts) < limits.starts and names:
        return None
    if len(names) < 2:
        return "no_pair"
    if len(starts) > limits.starts and all(
        _is_narrow(limits, starts[:count], *pair)
        for pair in combinations(names, 2)
        for count in (len(starts) - 1, len(starts))
    ):
        return "target"
    if len(starts) >= limits.most_starts:
        return "max_starts"
    spent = sum(start.seconds for start in starts)
    return "budget" if spent + _expect_next(limits, starts) > limits.budget_s else None


def _expect_next(limits: DuelLimits, starts: Sequence[FinishedStart]) -> float:
    """Seconds of the next start: those of the latest start that compiled, or did not, as it will;
    without one, those of the latest."""
    cold = [limits.compilation_of(index) == index for index in range(len(starts) + 1)]
    similar = [start.seconds for start, each in zip(starts, cold, strict=False) if each is cold[-1]]
    return (similar or [starts[-1].seconds])[-1]


def _is_narrow(limits: DuelLimits, starts: Sequence[FinishedStart], a: str, b: str) -> bool:
    found = [
        (log, start.compilation_of(a, b))
        for start in starts
        if (log := log_ratio(start.times.get(a, {}), start.times.get(b, {}))) is not None
    ]
    half = nested_half_width([log for log, _ in found], [each for _, each in found])
    return half <= limits.target
