from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchcore.verdict.samples import (
    Preference,
    judge_samples,
    robust_deviation,
    swap_factors,
    swap_sides,
    t_quantile,
    t_tail,
)

SURE_AND_SMALL = np.array([0.0099, 0.0100, 0.0101, 0.0100])


@pytest.mark.parametrize("first", ["same", "different"])
def test_the_caller_chooses_the_verdict_on_a_small_significant_difference(
    first: Preference,
) -> None:
    assert judge_samples(SURE_AND_SMALL, prefer=first).verdict == first


@pytest.mark.parametrize("first", ["same", "different"])
def test_the_order_of_the_samples_changes_nothing_else(first: Preference) -> None:
    rng = np.random.default_rng(1)
    found = {
        offset: judge_samples(offset + rng.normal(0, 0.004, 5), prefer=first).verdict
        for offset in (0.0, 0.1)
    }
    assert found == {0.0: "same", 0.1: "different"}
    wide = judge_samples(np.array([-0.3, 0.31]), prefer=first)
    assert wide.verdict == "unknown" and "too wide" in wide.reason


def test_interval_and_p_are_those_of_a_t_test() -> None:
    samples = np.random.default_rng(2).normal(0.01, 0.01, 6)
    found = judge_samples(samples, prefer="same")
    expected = stats.ttest_1samp(samples, 0)
    assert found.p == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_few_samples_that_agree_are_not_the_same_where_more_spread_is_expected() -> None:
    samples = np.array([0.0130, 0.0131, 0.0132, 0.0131])
    assert judge_samples(samples, prefer="same").verdict == "same"
    found = judge_samples(samples, prefer="same", least_spread=math.log1p(0.02) / 2)
    assert found.verdict == "different"


def test_samples_without_any_spread_have_a_p() -> None:
    assert judge_samples(np.full(3, 0.5), prefer="same").p == 0.0
    assert judge_samples(np.zeros(3), prefer="same").p == 1.0


def test_half_of_the_residuals_may_be_outliers() -> None:
    residuals = np.random.default_rng(3).normal(0, 2.0, 20_001)
    assert robust_deviation(residuals) == pytest.approx(2.0, rel=0.03)
    residuals[:9_000] = 1e9
    assert robust_deviation(residuals) < 20
    assert robust_deviation(residuals[:0]) == 0.0


def test_swapping_the_sides_of_a_ratio_turns_its_interval_round() -> None:
    assert swap_sides(0.1, 0.05, 0.15) == (-0.1, -0.15, -0.05)
    assert swap_sides(0.1, None, None) == (-0.1, None, None)
    assert swap_factors(2.0, 1.0, 4.0) == (0.5, 0.25, 1.0)


@pytest.mark.parametrize("freedom", [1, 2, 2.5, 7, 30, 400])
def test_quantiles_and_tails_are_those_of_scipy_stats(freedom: float) -> None:
    for share in (0.9, 0.95, 0.975, 0.9995):
        assert t_quantile(share, freedom) == stats.t.ppf(share, freedom)
    for t in (0.0, 0.3, 2.0, 17.5, 1e6, math.inf):
        assert t_tail(t, freedom) == stats.t.sf(t, freedom)


def test_a_relevant_difference_must_be_beyond_the_bound() -> None:
    def verdict(mean: float, spread: float) -> str:
        return judge_samples(mean + spread * np.array([-1, 0, 0, 1.0]), prefer="relevant").verdict

    assert [verdict(mean, 0.001) for mean in (0.005, 0.0195, 0.04)] == [
        "same",
        "unknown",
        "different",
    ]
    assert verdict(0.04, 0.02) == "unknown"
    found = judge_samples(np.array([0.039, 0.04, 0.04, 0.041]), prefer="relevant")
    assert found.p is not None and 1e-5 < found.p < 1e-2  # of 4 % against 2 %, not against 0


def test_an_end_of_an_interval_that_became_0_can_be_swapped() -> None:
    middle, low, high = swap_factors(2.0, 0.0, 1e300)
    assert (middle, low) == (0.5, 1e-300)
    assert 1e300 < high < math.inf
