from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.samples import Judgement


def _draw(
    seed: int, truth: float = 0.0, *, num: int = 5, pairs: int = 6, effect: float = 0.005
) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = truth + rng.normal(0, effect, num)
    return [rng.normal(centre, 0.004, pairs) for centre in centres]


def _judge_many(truth: float, count: int = 300, **drawn: float) -> list[Judgement]:
    return [judge_allocations(_draw(seed, truth, **drawn)) for seed in range(count)]  # type: ignore[arg-type]


def _share(found: list[Judgement], verdict: str) -> float:
    return sum(each.verdict == verdict for each in found) / len(found)


def test_pairs_are_never_taken_for_independent() -> None:
    """30 pairs an allocation would call nearly every pair of equals different."""
    found = _judge_many(0.0, num=3, pairs=30, effect=0.01)
    assert 0.02 < _share(found, "different") < 0.08
    pooled = [stats.ttest_1samp(np.concatenate(_draw(s, effect=0.01)), 0)[1] for s in range(300)]
    assert sum(p < 0.05 for p in pooled) > 100  # so the data could have misled


def test_the_interval_covers_the_truth_at_its_stated_rate() -> None:
    found = _judge_many(0.03, count=1000, effect=0.01)
    held = sum(each.low <= 0.03 <= each.high for each in found)  # type: ignore[operator]
    assert 0.935 <= held / len(found) <= 0.965


def test_clean_allocations_are_judged_by_the_t_test_on_their_means() -> None:
    unlike = 0
    for seed in range(100):
        allocations = _draw(seed, 0.01, pairs=4)
        expected = stats.ttest_1samp([pairs.mean() for pairs in allocations], 0)
        unlike += judge_allocations(allocations).p != pytest.approx(expected.pvalue)
    assert unlike <= 10


def test_outlier_pairs_do_not_hide_a_difference() -> None:
    lost, missed_by_means = 0, 0
    for seed in range(200):
        allocations = _draw(seed, 0.02)
        spoil = np.random.default_rng(seed + 1000)
        for pairs in allocations:
            pairs[spoil.random(len(pairs)) < 0.08] += 0.3
        lost += judge_allocations(allocations).verdict != "different"
        means = [pairs.mean() for pairs in allocations]
        missed_by_means += stats.ttest_1samp(means, 0)[1] >= 0.05
    assert lost <= 4 < 50 <= missed_by_means


def test_of_four_pairs_two_may_be_outliers() -> None:
    allocations = _draw(1, 0.02, num=4, pairs=4)
    allocations[0][:2] = (0.3, 0.5)
    found = judge_allocations(allocations)
    assert found.log_ratio == pytest.approx(0.02, abs=0.01)


def test_one_bad_node_of_five_is_left_out_and_named() -> None:
    for bad, offset in ((0, 0.2), (3, -0.15)):
        allocations = _draw(2, 0.02, effect=0.002)
        allocations[bad] += offset
        found = judge_allocations(allocations)
        assert (found.left_out, found.verdict) == (bad, "different")
        assert found.log_ratio == pytest.approx(0.02, abs=0.005)
    assert judge_allocations(_draw(2, 0.02)).left_out is None


def test_a_node_that_is_noisy_throughout_keeps_its_own_spread() -> None:
    allocations = _draw(3, 0.05, num=4)
    allocations[1] = np.array([-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.2005, 0.201])
    expected = np.mean([pairs.mean() for pairs in allocations])
    assert judge_allocations(allocations).log_ratio == pytest.approx(expected, abs=0.003)


@pytest.mark.parametrize("num", [2, 3, 5, 8])
def test_a_difference_of_3_percent_is_never_called_same(num: int) -> None:
    found = _judge_many(math.log(1.03), count=200, num=num, effect=0.01)
    assert _share(found, "same") == 0.0


def test_equal_contenders_are_called_same() -> None:
    assert _share(_judge_many(0.0), "same") > 0.75


def test_three_allocations_that_agree_by_chance_are_not_the_same_yet() -> None:
    """Two one-sided tests alone would call both `same`."""
    for mean, verdict in ((0.008, "unknown"), (0.002, "same")):
        found = judge_allocations([np.full(6, mean + step) for step in (-0.0034, 0, 0.0034)])
        assert found.verdict == verdict


def test_swapping_the_sides_inverts_the_judgement() -> None:
    there = judge_allocations(_draw(4, 0.02))
    back = judge_allocations([-pairs for pairs in _draw(4, 0.02)])
    assert back.log_ratio == pytest.approx(-there.log_ratio)  # type: ignore[operator]
    assert (back.verdict, back.p) == (there.verdict, pytest.approx(there.p))


@pytest.mark.parametrize(
    ("allocations", "words"),
    [
        ([], "no pair in any allocation"),
        ([[]], "no pair in any allocation"),
        ([[0.5] * 30], "one allocation only raises a suspicion"),
        ([[0.5, 0.6], []], "one allocation only raises a suspicion"),
        ([[0.5]], "one allocation only raises a suspicion"),
        ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], "agree to the last digit"),
        ([[0.3] * 3] * 5, "agree to the last digit"),
        ([[0.1, -0.1], [0.3, -0.2]], "too wide"),
        ([[700.0, -700.0], [0.3, -500.0]], "too wide"),
    ],
)
def test_too_few_pairs_have_no_verdict(allocations: list[list[float]], words: str) -> None:
    found = judge_allocations([np.array(pairs) for pairs in allocations])
    assert found.verdict == "unknown"
    assert words in found.reason


def test_half_a_million_pairs_are_judged() -> None:
    rng = np.random.default_rng(5)
    found = judge_allocations([rng.normal(0.03 + e, 0.01, 100_000) for e in rng.normal(0, 3e-3, 5)])
    assert found.verdict == "different"
