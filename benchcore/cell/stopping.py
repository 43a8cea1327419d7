"""When a duel stops: rounds until a start is settled, starts until all pairs are.

The start is the unit of inference. The interval within a start only shows when more rounds are
useless; the intervals over starts end the duel.

Stopping when an interval happens to be narrow favours starts that happen to agree, so the
interval then covers less than 95 %. With at least 3 starts and one look at the target, up to 10 %
of the intervals would miss. Here the target must be met twice in a row, with and without the
latest start, and never with the fewest starts only: at most 8.5 % miss (7.5 % with at least 5
starts). A false `different` stays at 5 %, because the verdict tests for `same` first;
`tests/benchcore/cell/test_stopping.py` simulates it. Time is independent of the ratio, so
stopping by the budget costs no coverage.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement

from benchcore.protocol import DuelOrder, StoppedBy

MIN_STEPS = 50
"""Timed steps of every contender over a duel, before any other limit."""

Times = Mapping[str, Mapping[int, float]]
"""Of one start: per contender, the nanoseconds per step in each round that counts."""

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
    return t_975(len(samples) - 1) * statistics.stdev(samples) / math.sqrt(len(samples))


def log_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """log(T_b / T_a) of one start, as in the verdict: the median of all pairwise means."""
    paired = _paired(a, b)
    means = [(one + other) / 2 for one, other in combinations_with_replacement(paired, 2)]
    return statistics.median(means) if means else None


def _paired(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    return [math.log(b[each] / a[each]) for each in sorted(a.keys() & b.keys())]


def wants_round(
    order: DuelOrder, times: Times, played: int, steps: Iterable[int], seconds_left: float
) -> bool:
    """Whether a start continues with another round and its mirror, after `played` rounds.

    `times` and `steps` are those of the contenders still running: a start without any is over. The
    fewest steps per start and the fewest rounds come before every limit. They count degraded
    blocks, or on a busy machine they would never end. The interval uses only blocks that may count.
    """
    if not times:
        return False
    if played < order.limits.rounds or min(steps) < math.ceil(MIN_STEPS / order.limits.starts):
        return True
    if played >= order.limits.most_rounds or seconds_left <= 0:
        return False
    pairs = combinations(times.values(), 2)
    return any(half_width(_paired(a, b)) > order.limits.target / 2 for a, b in pairs)


def seconds_left(order: DuelOrder, index: int, spent_s: float) -> float:
    """Time left of a start's share of the budget; the minimum starts still to come have theirs."""
    share = min(1.0, (index + 1) / order.limits.starts)
    return order.limits.budget_s * share - spent_s


def why_stop(
    order: DuelOrder, names: Sequence[str], starts: Sequence[Times], start_s: Sequence[float]
) -> StoppedBy | None:
    """The limit that ends a duel after these starts; None = another start.

    `names` are the contenders still in the duel, `start_s` the duration of each start. The next one
    may take as long as the latest, and must fit into the budget.
    """
    if len(starts) < order.limits.starts and names:
        return None
    if len(names) < 2:
        return "no_pair"
    if len(starts) > order.limits.starts and all(
        _is_narrow(order, starts[:count], *pair)
        for pair in combinations(names, 2)
        for count in (len(starts) - 1, len(starts))
    ):
        return "target"
    if len(starts) >= order.limits.most_starts:
        return "max_starts"
    return "budget" if sum(start_s) + start_s[-1] > order.limits.budget_s else None


def _is_narrow(order: DuelOrder, starts: Sequence[Times], a: str, b: str) -> bool:
    of_starts = [log_ratio(start.get(a, {}), start.get(b, {})) for start in starts]
    return half_width([each for each in of_starts if each is not None]) <= order.limits.target
