"""When a duel ends: never on one start, not before its minimum, and fooling no verdict."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchcore.cell import stopping
from benchcore.protocol import DuelLimits
from benchcore.verdict.duel.ratios import ContenderTimes, Ratio, judge_duel
from benchcore.verdict.starts import log_ratios_by_start

NAMES = ("a", "b")


def _limits(**changes: Any) -> DuelLimits:
    rounds = {"rounds": 4, "max_rounds": 12}
    limits = {"starts": 3, "max_starts": 9, "compilations": 1, "budget_s": 100.0, **rounds}
    return DuelLimits(**{**limits, **changes})


def _start(log_ratio: float, rounds: int = 4, noise: float = 0.0) -> stopping.Times:
    """A start in which b takes exp(log_ratio) times as long as a, give or take the noise."""
    b = {each: 1e6 * math.exp(log_ratio + noise * (-1) ** each) for each in range(rounds)}
    return {"a": dict.fromkeys(range(rounds), 1e6), "b": b}


def _why(limits: DuelLimits, log_ratios: list[float], start_s: float = 1.0) -> str | None:
    return stopping.why_stop(limits, NAMES, _finish(limits, map(_start, log_ratios), start_s))


def _finish(
    limits: DuelLimits, times: Iterable[stopping.Times], start_s: float = 1.0
) -> list[stopping.FinishedStart]:
    return [
        stopping.FinishedStart(
            times=each,
            seconds=start_s,
            compilations=dict.fromkeys(each, limits.compilation_of(index)),
        )
        for index, each in enumerate(times)
    ]


@pytest.mark.parametrize("freedom", [*range(1, 41), 60, 100, 1000])
def test_the_quantile_agrees_with_scipys_to_three_digits(freedom: int) -> None:
    assert stopping.t_975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=5e-4)


def test_the_ratio_of_a_start_is_the_verdicts() -> None:
    noise = random.Random(1)
    times = {name: {each: noise.uniform(1, 2) for each in range(11)} for name in NAMES}
    wanted = log_ratios_by_start({0: times["a"]}, {0: times["b"]})
    assert stopping.log_ratio(times["a"], times["b"]) == pytest.approx(wanted[0], rel=1e-12)


def test_one_start_never_ends_a_duel_however_narrow_its_own_interval() -> None:
    for starts in (1, 2, 3):
        assert _why(_limits(starts=starts), [0.1]) is None
    assert _why(_limits(starts=1), [0.1, 0.1]) is None


def test_the_target_must_be_met_twice_and_never_by_the_fewest_starts_alone() -> None:
    assert _why(_limits(), [0.1, 0.1, 0.1]) is None
    assert _why(_limits(), [0.1, 0.1, 0.1, 0.1]) == "target"
    assert _why(_limits(), [0.1, 0.13, 0.1, 0.1]) is None
    # Now narrow enough, but not one start ago.
    lately = [0.0, 0.02] + [0.01] * 4
    assert [_why(_limits(), lately[:count]) for count in (4, 5, 6)] == [None, None, "target"]


def test_every_pair_must_be_narrow() -> None:
    times = [{**_start(0.1), "c": dict.fromkeys(range(4), 1e6 * f)} for f in (1.0, 1.2, 0.8, 1.1)]
    starts = _finish(_limits(), times)
    assert stopping.why_stop(_limits(), NAMES, starts) == "target"
    assert stopping.why_stop(_limits(), (*NAMES, "c"), starts) is None


def test_a_duel_goes_on_while_compilations_differ_however_well_their_starts_agree() -> None:
    """0.5 % apart, 9 starts: a single compilation's interval would be ± 0.3 %, theirs is 1.2 %."""
    differ = [0.1, 0.105, 0.11] * 3
    one, three = _limits(max_starts=20), _limits(max_starts=20, compilations=3)
    assert (_why(one, differ), _why(three, differ)) == ("target", None)
    assert _why(three, [0.1, 0.101, 0.102] * 3) == "target"


def test_the_first_starts_compile_anew_and_the_others_take_turns() -> None:
    limits = _limits(compilations=3)
    assert [limits.compilation_of(start) for start in range(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [_limits().compilation_of(start) for start in range(3)] == [0, 0, 0]


def test_the_budget_expects_of_the_next_start_what_those_like_it_took() -> None:
    """Two compile again, 30 s each; a third one that does not is expected to take 5 s."""
    limits = _limits(starts=3, compilations=2, budget_s=70.0)
    starts = _finish(limits, map(_start, (0.1, 0.2, 0.1)), 30.0)
    starts[2] = dataclasses.replace(starts[2], seconds=5.0)
    assert stopping.why_stop(limits, NAMES, starts) is None
    cold = _limits(starts=2, compilations=3, budget_s=70.0)
    assert stopping.why_stop(cold, NAMES, starts[:2]) == "budget"


def test_the_largest_number_of_starts_ends_a_duel_that_stays_wide() -> None:
    wide = [0.1, 0.2] * 5
    assert _why(_limits(), wide[:8]) is None
    assert _why(_limits(), wide[:9]) == "max_starts"
    assert _why(_limits(starts=3, max_starts=3), [0.1, 0.1, 0.1]) == "max_starts"


def test_the_budget_allows_the_fewest_starts_and_no_start_that_would_exceed_it() -> None:
    wide = [0.1, 0.2] * 5
    assert _why(_limits(), wide[:2], start_s=1000.0) is None
    assert _why(_limits(), wide[:3], start_s=1000.0) == "budget"
    assert _why(_limits(), wide[:3], start_s=25.0) is None
    assert _why(_limits(), wide[:4], start_s=25.0) == "budget"


def test_a_contender_without_opponents_runs_the_fewest_starts() -> None:
    starts = _finish(_limits(), [_start(0.1)] * 3)
    assert stopping.why_stop(_limits(), ["a"], starts[:2]) is None
    assert stopping.why_stop(_limits(), ["a"], starts) == "no_pair"
    assert stopping.why_stop(_limits(), [], starts[:1]) == "no_pair"


def _wants(num_rounds: int, *, noise: float = 0.0, steps: int = 1000, left_s: float = 9.0) -> bool:
    times = _start(0.1, num_rounds, noise)
    return stopping.wants_round(_limits(), times, num_rounds, [steps, 1000], left_s)


def test_rounds_go_on_until_the_start_is_settled() -> None:
    assert _wants(0)
    assert _wants(2)
    assert not _wants(4)
    assert _wants(4, noise=0.1)
    assert not _wants(12, noise=0.1)
    assert not _wants(4, noise=0.1, left_s=-1.0)
    assert _wants(2, left_s=-1.0)
    assert not stopping.wants_round(_limits(), {}, 0, [], 9.0)


def test_rounds_without_a_valid_block_settle_nothing_and_still_end() -> None:
    nothing: stopping.Times = {"a": {}, "b": {}}
    wanted = [stopping.wants_round(_limits(), nothing, each, [1000], 9.0) for each in (4, 10, 12)]
    assert wanted == [True, True, False]
    late = {
        name: {each + 4: ns for each, ns in of_one.items()} for name, of_one in _start(0.1).items()
    }
    assert stopping.wants_round(_limits(), {**late, "b": {}}, 8, [1000, 1000], 9.0)
    assert not stopping.wants_round(_limits(), late, 8, [1000, 1000], 9.0)


def test_no_limit_cuts_fifty_steps_a_contender() -> None:
    assert _wants(12, steps=16, left_s=-1.0)
    assert not _wants(12, steps=17, left_s=-1.0)
    assert stopping.MIN_STEPS <= 3 * 17


def test_an_early_start_leaves_the_later_ones_their_share_of_the_budget() -> None:
    left = [stopping.seconds_left(_limits(), index, 50.0) for index in (0, 1, 2, 3, 8)]
    assert left == pytest.approx([-50 / 3, 50 / 3, 50, 50, 50])


@pytest.mark.parametrize(
    ("starts", "max_starts", "compilations"), [(3, 10, 1), (5, 20, 1), (3, 10, 3), (5, 20, 5)]
)
@pytest.mark.parametrize("sd_of_starts", [0.006, 0.015, 0.03])
def test_stopping_early_hardly_costs_coverage_and_no_false_difference(
    starts: int, max_starts: int, compilations: int, sd_of_starts: float
) -> None:
    """1,500 duels of a contender against itself, whose starts differ: nominal is 5 % both."""
    limits = _limits(starts=starts, max_starts=max_starts, compilations=compilations)
    noise = np.random.default_rng(7).normal(0, sd_of_starts, (1500, max_starts))
    ratios = [_play(limits, list(of_duel)) for of_duel in noise]
    assert _missed(ratios) <= 0.09
    assert np.mean([each.verdict == "different" for each in ratios]) <= 0.06


@pytest.mark.parametrize(("compilations", "least", "most"), [(1, 0.5, 1.0), (3, 0.0, 0.08)])
def test_an_interval_over_compilations_contains_the_truth_and_one_within_does_not(
    compilations: int, least: float, most: float
) -> None:
    """1,000 duels whose compilations differ by 1 % and whose starts differ by 0.3 %: how many
    intervals miss the truth over all compilations."""
    limits = _limits(max_starts=10, compilations=compilations)
    rng = np.random.default_rng(8)
    offsets = rng.normal(0, 0.01, (1000, compilations))
    starts = rng.normal(0, 0.003, (1000, 10)) + np.tile(offsets, 10)[:, :10]
    assert least <= _missed([_play(limits, list(of_duel)) for of_duel in starts]) <= most


def _missed(ratios: Sequence[Ratio]) -> float:
    return float(np.mean([abs(each.log_ratio or 0) > _half(each) for each in ratios]))


def _play(limits: DuelLimits, log_ratios: list[float]) -> Ratio:
    """A duel that has these starts, one after the other, until it ends; its ratio."""
    starts: list[stopping.Times] = []
    while not starts or not stopping.why_stop(limits, NAMES, _finish(limits, starts, 0.0)):
        starts.append(_start(log_ratios[len(starts)], rounds=1))
    compilations = {index: limits.compilation_of(index) for index in range(len(starts))}
    sides = [
        ContenderTimes(
            name=name,
            arm=name,
            framework="jax",
            version="1",
            role="newest",
            starts=dict(enumerate(start[name] for start in starts)),
            compilations=compilations,
        )
        for name in NAMES
    ]
    (ratio,) = judge_duel(sides)
    return ratio


def _half(ratio: Ratio) -> float:
    assert ratio.low is not None and ratio.high is not None
    return (ratio.high - ratio.low) / 2
