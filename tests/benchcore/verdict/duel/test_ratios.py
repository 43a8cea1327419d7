from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchcore.verdict.duel.ratios import (
    ContenderTimes,
    Exclusion,
    Ratio,
    classify_pair,
    judge_duel,
)

JAX = ContenderTimes(
    name="jax", arm="jax-jit", framework="jax", version="0.9.0", role="newest", starts={}
)
TORCH = ContenderTimes(
    name="torch", arm="torch-eager", framework="torch", version="2.10.0", role="newest", starts={}
)
ONE = "this node, within one compilation"
STEP_NS = st.floats(min_value=1e3, max_value=1e9)
ROUNDS = st.dictionaries(st.integers(0, 7), STEP_NS, min_size=1, max_size=6)
STARTS = st.dictionaries(st.integers(0, 5), ROUNDS, max_size=5)


def timed(side: ContenderTimes, starts: object) -> ContenderTimes:
    if not isinstance(starts, dict):
        rows = np.asarray(starts)
        starts = {i: dict(enumerate(map(float, row))) for i, row in enumerate(rows)}
    return dataclasses.replace(side, starts=starts)


def judge_pair(jax: object, torch: object, bound: float = 0.02) -> Ratio:
    [ratio] = judge_duel([timed(JAX, jax), timed(TORCH, torch)], equivalence_bound=bound)
    return ratio


def numbers(ratio: Ratio) -> list[float]:
    return [each for each in (ratio.log_ratio, ratio.low, ratio.high) if each is not None]


@given(STARTS, STARTS)
def test_swapping_the_times_inverts_the_ratio(one: object, other: object) -> None:
    there, back = judge_pair(one, other), judge_pair(other, one)
    assert numbers(there)[:1] == pytest.approx([-each for each in numbers(back)[:1]], abs=1e-9)
    assert numbers(there)[1:] == pytest.approx([-each for each in numbers(back)[:0:-1]], abs=1e-9)
    assert there.num_starts == back.num_starts


@given(STARTS, STARTS, st.floats(min_value=1e-3, max_value=1e3))
def test_a_common_scale_cancels_out(
    one: dict[int, dict[int, float]], other: dict[int, dict[int, float]], scale: float
) -> None:
    def scaled(starts: dict[int, dict[int, float]]) -> dict[int, dict[int, float]]:
        return {
            start: {key: scale * value for key, value in rounds.items()}
            for start, rounds in starts.items()
        }

    expected = numbers(judge_pair(one, other))
    assert numbers(judge_pair(scaled(one), scaled(other))) == pytest.approx(expected, abs=1e-9)


@given(STARTS, STARTS)
def test_a_ratio_has_an_interval_or_a_reason_for_none(one: object, other: object) -> None:
    ratio = judge_pair(one, other)
    assert ratio.reason
    assert ratio.counts == (ratio.num_starts > 0)
    assert ratio.scope == (ONE if ratio.num_starts > 1 else "this start")
    if ratio.num_starts < 2:
        assert (ratio.low, ratio.high, ratio.verdict) == (None, None, "unknown")
    else:
        low, middle, high = ratio.low, ratio.log_ratio, ratio.high
        assert low is not None and middle is not None and high is not None
        assert low <= middle <= high


@given(STARTS, STARTS, STARTS, st.permutations(range(3)))
def test_the_order_of_the_sides_does_not_matter(
    one: object, other: object, third: object, order: list[int]
) -> None:
    old = dataclasses.replace(TORCH, name="old", version="2.9.1")
    sides = [timed(JAX, one), timed(TORCH, other), timed(old, third)]

    def by_pair(sides: list[ContenderTimes]) -> dict[tuple[str, str], Ratio]:
        return {(each.a, each.b): each for each in judge_duel(sides)}

    assert by_pair([sides[each] for each in order]) == by_pair(sides)


def simulate(
    rng: np.random.Generator, *, starts: int, rounds: int, spread: float, truth: float = 0.0
) -> Ratio:
    jax = 1e6 * np.exp(rng.normal(0, 0.1, (starts, rounds)))
    per_start = rng.normal(truth, spread, (starts, 1))
    torch = jax * np.exp(per_start + rng.normal(0, 0.005, (starts, rounds)))
    return judge_pair(jax, torch, bound=0.0001)


@pytest.mark.parametrize("starts", [3, 5])
def test_equal_contenders_are_seldom_called_different_when_starts_differ(starts: int) -> None:
    rng = np.random.default_rng(7)
    ratios = [simulate(rng, starts=starts, rounds=6, spread=0.01) for _ in range(2000)]
    false_alarms = np.mean([ratio.verdict == "different" for ratio in ratios])
    assert 0.035 <= false_alarms <= 0.065


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(8)
    ratios = [simulate(rng, starts=5, rounds=6, spread=0.01, truth=0.03) for _ in range(300)]
    assert np.mean([ratio.verdict == "different" for ratio in ratios]) > 0.9


def test_more_rounds_do_not_narrow_the_interval_when_starts_differ() -> None:
    def width(rounds: int) -> float:
        rng = np.random.default_rng(9)
        ratios = [simulate(rng, starts=3, rounds=rounds, spread=0.02) for _ in range(200)]
        return float(np.median([ratio.high - ratio.low for ratio in ratios if ratio.low]))

    assert width(40) > 0.8 * width(4)


def test_the_log_ratio_is_above_zero_where_a_is_faster() -> None:
    ratio = judge_pair([[100.0, 101.0]] * 3, [[200.0, 202.0]] * 3)
    assert (ratio.kind, ratio.a, ratio.b) == ("cross_framework", "jax", "torch")
    assert ratio.log_ratio == pytest.approx(math.log(2))
    assert ratio.start_log_ratios == pytest.approx((math.log(2),) * 3)
    assert (ratio.verdict, ratio.counts, ratio.scope) == ("different", True, ONE)


def test_rounds_are_paired_by_number_and_starts_by_index() -> None:
    jax = {0: {0: 1.0, 1: 10.0, 2: 100.0}, 1: {0: 1.0}, 2: {5: 1.0}}
    torch = {0: {1: 20.0, 2: 200.0, 3: 7.0}, 1: {0: 2.0}, 2: {4: 9.0}, 3: {0: 9.0}}
    ratio = judge_pair(jax, torch)
    assert ratio.start_log_ratios == pytest.approx((math.log(2), math.log(2)))


def test_one_outlier_round_hardly_moves_a_start() -> None:
    torch = [[1.0] * 9 + [50.0]] * 3
    ratio = judge_pair([[1.0] * 10] * 3, torch)
    assert ratio.log_ratio == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [
        ((0.0, 0.0001, -0.0001), "same"),
        # Significant, and too small to matter: significance is not relevance.
        ((0.005, 0.0051, 0.0049), "same"),
        # Two one-sided tests at 5 % ask the 90 % interval; the 95 % interval passes the bound.
        ((0.005, 0.01, 0.015), "same"),
        ((0.1, 0.101, 0.099), "different"),
        ((-0.1, -0.101, -0.099), "different"),
        ((0.1, -0.1, 0.0), "unknown"),
        # The 95 % interval excludes 0, the 90 % interval reaches beyond the bound.
        ((0.018, 0.0195, 0.021), "different"),
    ],
)
def test_each_interval_has_its_verdict(logs: tuple[float, ...], verdict: str) -> None:
    torch = [[math.exp(each)] * 4 for each in logs]
    ratio = judge_pair([[1.0] * 4] * len(logs), torch)
    assert ratio.verdict == verdict
    assert ratio.start_log_ratios == pytest.approx(logs)


def test_the_interval_is_that_of_a_t_test_over_starts() -> None:
    logs = (0.01, 0.03, 0.05)
    ratio = judge_pair([[1.0] * 4] * 3, [[math.exp(each)] * 4 for each in logs])
    half = 4.302652729911275 * 0.02 / math.sqrt(3)
    assert (ratio.low, ratio.high) == (pytest.approx(0.03 - half), pytest.approx(0.03 + half))


def _judge_nested(
    logs: Sequence[float], jax: Sequence[int | None], torch: Sequence[int | None] | None = None
) -> Ratio:
    """Of starts with these log ratios, and the compilation of each side's starts."""
    sides = [timed(JAX, [[1.0]] * len(logs)), timed(TORCH, [[math.exp(log)] for log in logs])]
    compilations = [jax, jax if torch is None else torch]
    [ratio] = judge_duel(
        [
            dataclasses.replace(side, compilations=dict(enumerate(each)))
            for side, each in zip(sides, compilations, strict=True)
        ]
    )
    return ratio


def test_the_interval_holds_the_variance_between_compilations() -> None:
    """Of three compilations 1 % apart, each with two starts that agree: the starts alone would give
    half the width, at five degrees of freedom."""
    logs = (0.01, 0.02, 0.03, 0.01, 0.02, 0.03)
    ratio = _judge_nested(logs, (0, 1, 2, 0, 1, 2))
    half = stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3)
    assert (ratio.low, ratio.high) == (pytest.approx(0.02 - half), pytest.approx(0.02 + half))
    assert ratio.scope == "this node, over 3 compilations"
    assert ratio.start_compilations == (0, 1, 2, 0, 1, 2)
    assert ratio.num_starts == 6
    alone = _judge_nested(logs, (0,) * 6)
    assert alone.high is not None and alone.high - 0.02 < 0.55 * half
    assert alone.scope == ONE


def test_a_compilation_with_more_starts_weighs_no_more() -> None:
    ratio = _judge_nested((0.01, 0.03, 0.03, 0.03), (0, 1, 1, 1))
    assert ratio.log_ratio == pytest.approx(0.02)
    assert ratio.scope == "this node, over 2 compilations"


def test_compilations_that_agree_by_chance_are_not_narrower_than_their_starts() -> None:
    """Three means of 0.02, though starts lie 2 % apart."""
    logs = (0.01, 0.02, 0.03, 0.03, 0.02, 0.01)
    ratio = _judge_nested(logs, (0, 1, 2, 0, 1, 2))
    assert (ratio.low, ratio.high) == (
        pytest.approx(_judge_nested(logs, (0,) * 6).low),
        pytest.approx(_judge_nested(logs, (0,) * 6).high),
    )


def test_starts_of_a_pair_that_compiles_nothing_are_the_samples() -> None:
    logs = (0.01, 0.02, 0.03, 0.02)
    eager = _judge_nested(logs, (None,) * 4)
    assert (eager.low, eager.scope) == (
        pytest.approx(_judge_nested(logs, (0,) * 4).low),
        "this node",
    )
    for sides in (((0, 1, 0, 1), (None,) * 4), ((None,) * 4, (0, 1, 0, 1))):
        assert _judge_nested(logs, *sides).start_compilations == (0, 1, 0, 1)


def test_a_wide_interval_is_unknown_with_its_width() -> None:
    ratio = judge_pair([[1.0]] * 3, [[math.exp(each)] for each in (0.1, -0.1, 0.0)])
    assert ratio.reason == (
        "95 % interval ±28.2 % is too wide to distinguish a difference of 2.0 % from none"
    )


def test_one_start_is_a_suspicion_only() -> None:
    ratio = judge_pair([[1.0] * 30], [[2.0] * 30])
    assert ratio.log_ratio == pytest.approx(math.log(2))
    assert (ratio.low, ratio.high, ratio.verdict, ratio.scope) == (
        None,
        None,
        "unknown",
        "this start",
    )
    assert "only raises a suspicion" in ratio.reason


def test_a_side_without_blocks_gives_no_numbers_and_does_not_count() -> None:
    ratio = judge_pair([[1.0]], {})
    assert (numbers(ratio), ratio.num_starts, ratio.counts) == ([], 0, False)
    assert ratio.verdict == "unknown"
    assert ratio.reason == "no round that both contenders finished"


@pytest.mark.parametrize("names", [(), ("jax",), ("torch",), ("torch", "jax")])
def test_an_excluded_pair_keeps_its_numbers_and_does_not_count(names: tuple[str, ...]) -> None:
    sides = [timed(JAX, [[1.0]] * 3), timed(TORCH, [[2.0]] * 3)]
    exclusions = [
        Exclusion(frozenset(names), "it is wrong"),
        Exclusion(frozenset(names), "it is wrong"),
        Exclusion(frozenset(names), "twice"),
    ]
    [ratio] = judge_duel(sides, exclusions)
    assert ratio.log_ratio == pytest.approx(math.log(2))
    assert (ratio.verdict, ratio.counts, ratio.reason) == ("unknown", False, "it is wrong; twice")


@pytest.mark.parametrize("names", [("jax", "another"), ("another",)])
def test_an_exclusion_of_others_leaves_a_pair_alone(names: tuple[str, ...]) -> None:
    sides = [timed(JAX, [[1.0]] * 3), timed(TORCH, [[2.0]] * 3)]
    [ratio] = judge_duel(sides, [Exclusion(frozenset(names), "it is wrong")])
    assert ratio.counts


def test_versions_are_ordered_as_versions_and_the_newer_comes_first() -> None:
    old = dataclasses.replace(TORCH, name="old", version="2.9.1", role="previous")
    [ratio] = judge_duel([timed(old, [[2.0]] * 3), timed(TORCH, [[1.0]] * 3)])
    assert (ratio.kind, ratio.a, ratio.b) == ("cross_version", "torch", "old")
    assert (ratio.a_version, ratio.b_version) == ("2.10.0", "2.9.1")
    assert (ratio.a_role, ratio.b_role) == ("newest", "previous")
    assert ratio.log_ratio == pytest.approx(math.log(2))


def test_four_cells_give_four_pairs_across_frameworks_and_one_per_framework() -> None:
    cells = [
        JAX,
        dataclasses.replace(JAX, name="jax-old", version="0.8.0"),
        TORCH,
        dataclasses.replace(TORCH, name="torch-old", version="2.9.0"),
    ]
    found = {(each.kind, each.a, each.b) for each in judge_duel(cells)}
    assert found == {
        ("cross_framework", "jax", "torch"),
        ("cross_framework", "jax", "torch-old"),
        ("cross_framework", "jax-old", "torch"),
        ("cross_framework", "jax-old", "torch-old"),
        ("cross_version", "jax", "jax-old"),
        ("cross_version", "torch", "torch-old"),
    }


_OF_SETTINGS = pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(JAX, name="again", role="pinned"),
        dataclasses.replace(JAX, name="eager", arm="jax-eager"),
        dataclasses.replace(JAX, name="old eager", arm="jax-eager", version="0.8.0"),
    ],
    ids=["itself", "another arm", "another arm and version"],
)


@_OF_SETTINGS
def test_a_duel_of_two_always_has_a_ratio(other: ContenderTimes) -> None:
    for pair in ([JAX, other], [other, JAX]):
        times = [[[1.0]] * 3, [[2.0]] * 3]
        (ratio,) = judge_duel([timed(side, rows) for side, rows in zip(pair, times, strict=True)])
        assert (ratio.kind, ratio.a, ratio.b) == ("cross_setting", pair[0].name, pair[1].name)
        assert ratio.log_ratio == pytest.approx(math.log(2))
        assert ratio.verdict == "different"


@_OF_SETTINGS
def test_pairs_across_settings_hide_no_other_in_a_larger_duel(other: ContenderTimes) -> None:
    kinds = [ratio.kind for ratio in judge_duel([JAX, other, TORCH])]
    assert kinds == ["cross_framework", "cross_framework"]


def test_a_framework_and_bare_python_have_no_ratio() -> None:
    bare = dataclasses.replace(JAX, name="noop", framework="stdlib", version="0.8.0")
    assert judge_duel([JAX, bare]) == []


def test_two_stdlib_contenders_have_no_ratio() -> None:
    one = dataclasses.replace(JAX, framework="stdlib", version="3.11")
    other = dataclasses.replace(one, name="other", version="3.12")
    assert judge_duel([one, other]) == []


def test_a_replicate_beside_others_is_compared_and_has_no_ratio() -> None:
    replicate = dataclasses.replace(JAX, name="jax-again")
    assert classify_pair(JAX, replicate, alone=False) == "replicate"
    assert classify_pair(JAX, replicate, alone=True) == "cross_setting"
    assert {each.kind for each in judge_duel([JAX, replicate, TORCH])} == {"cross_framework"}
