"""Times to an accuracy, and last accuracies, of two sides over seeds that both share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from benchcore.verdict.duel.seeds import (
    FEWEST_SEEDS,
    Pair,
    TrainedSeed,
    judge_accuracies,
    judge_times,
    permutation_p_value,
    summarise_side,
)

_NUM_VAL = 1000


def _train(seed: int, **changes: object) -> TrainedSeed:
    begun = TrainedSeed(
        seed=seed, inputs_sha256=f"inputs {seed}", seconds=1.0, accuracy=0.9, disturbed=False
    )
    return dataclasses.replace(begun, **changes)  # type: ignore[arg-type]


def _pair_accuracies(a: Sequence[float], b: Sequence[float]) -> list[Pair]:
    sides = ([_train(seed, accuracy=each) for seed, each in enumerate(side)] for side in (a, b))
    return list(zip(*sides, strict=True))


def _pair_times(
    a: Sequence[float | None], b: Sequence[float | None], disturbed: Sequence[int] = ()
) -> list[Pair]:
    return [
        (_train(seed, seconds=one), _train(seed, seconds=other, disturbed=seed in disturbed))
        for seed, (one, other) in enumerate(zip(a, b, strict=True))
    ]


def test_accuracies_that_differ_in_every_seed_are_different() -> None:
    a, b = (0.90, 0.91, 0.89, 0.92, 0.90), (0.87, 0.89, 0.86, 0.88, 0.88)
    found = judge_accuracies(_pair_accuracies(a, b), _NUM_VAL)
    assert (found.verdict, found.reason) == ("different", "95 % interval excludes equality")
    assert found.difference == pytest.approx(0.028)
    assert found.low is not None
    assert found.low > 0
    assert found.p == 2 / 32, "the smallest that an exact test of 5 pairs can give"
    swapped = judge_accuracies(_pair_accuracies(b, a), _NUM_VAL)
    assert (swapped.verdict, swapped.difference) == ("different", pytest.approx(-0.028))


def test_accuracies_within_the_margin_are_equal_although_a_few_images_differ() -> None:
    a, b = (0.900, 0.912, 0.893, 0.921, 0.904), (0.902, 0.911, 0.891, 0.923, 0.903)
    found = judge_accuracies(_pair_accuracies(a, b), _NUM_VAL)
    assert found.verdict == "equal"
    assert found.reason == "95 % interval and distance lie within ±1 percentage points"
    tighter = judge_accuracies(_pair_accuracies(a, b), _NUM_VAL, margin=0.001)
    assert tighter.verdict == "not shown"


@pytest.mark.parametrize("num_seeds", [0, 1, 2, FEWEST_SEEDS - 1])
def test_too_few_seeds_show_neither(num_seeds: int) -> None:
    for other in (0.9, 0.5):
        given = _pair_accuracies((0.9,) * num_seeds, (other,) * num_seeds)
        found = judge_accuracies(given, _NUM_VAL)
        assert (found.verdict, found.difference) == ("not shown", None)
        assert found.reason == f"{num_seeds} seeds on both sides, at least 5 are needed"


def test_accuracies_that_scatter_are_not_shown_to_be_equal() -> None:
    a, b = (0.90, 0.95, 0.85, 0.91, 0.89), (0.92, 0.90, 0.90, 0.86, 0.93)
    found = judge_accuracies(_pair_accuracies(a, b), _NUM_VAL)
    assert found.verdict == "not shown"
    assert found.reason == "95 % interval is not within ±1 percentage points, and includes equality"


def test_equal_accuracies_of_few_images_are_not_known_to_a_point() -> None:
    """Five of five equal ones of 20 images leave an interval of two points on each side."""
    given = _pair_accuracies((0.9,) * 5, (0.9,) * 5)
    assert judge_accuracies(given, 20).verdict == "not shown"
    assert judge_accuracies(given, _NUM_VAL).verdict == "equal"


def test_sides_with_equal_means_and_unequal_spread_are_different() -> None:
    draw = np.random.default_rng(0)
    a, b = 0.8 + draw.normal(0, 0.002, 14), 0.8 + draw.normal(0, 0.04, 14)
    found = judge_accuracies(_pair_accuracies(list(a), list(b - b.mean() + a.mean())), _NUM_VAL)
    assert found.verdict == "different"
    assert "the means may be equal, but the distributions differ" in found.reason


def test_equal_distributions_are_rarely_called_different() -> None:
    draw = np.random.default_rng(1)
    verdicts = Counter(
        judge_accuracies(
            _pair_accuracies(*(0.8 + draw.normal(0, 0.03, (2, num_seeds))).tolist()), _NUM_VAL
        ).verdict
        for num_seeds in (5, 8)
        for _ in range(400)
    )
    assert verdicts["different"] < 0.08 * verdicts.total()


def test_seeds_with_different_weights_are_no_pairs() -> None:
    given = _pair_accuracies((0.9,) * 5, (0.9,) * 5)
    a, b = given[3]
    given[3] = a, dataclasses.replace(b, inputs_sha256="others")
    found = judge_accuracies(given, _NUM_VAL)
    assert found.verdict == "not shown"
    assert found.reason == "both sides had different weights or data with seed 3"


def test_many_seeds_are_exchanged_at_random() -> None:
    apart, draw = np.linspace(0.5, 0.6, 40), np.random.default_rng(2)
    assert permutation_p_value(apart, apart + 0.05) == pytest.approx(1e-4)
    assert permutation_p_value(apart, apart + draw.normal(0, 0.02, 40)) > 0.01


def test_the_faster_side_has_an_interval_over_seeds() -> None:
    a, b = (2.0, 4.0, 3.0, 5.0, 2.5), (4.1, 8.0, 5.9, 10.2, 5.0)
    found = judge_times(_pair_times(a, b))
    assert (found.verdict, found.num_seeds) == ("different", 5)
    assert found.ratio == pytest.approx(2.0, rel=0.02)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert 1.9 < found.low < found.ratio < found.high < 2.1, "seeds differ more than sides do"
    side = summarise_side([one for one, _ in _pair_times(a, b)])
    assert (side.num_seeds, side.num_reached, side.num_disturbed) == (5, 5, 0)
    assert side.seconds == pytest.approx(3.13, rel=0.01)
    assert side.low is not None
    assert side.high is not None
    assert side.low < 2.5 < 4.0 < side.high


def test_a_seed_that_never_arrives_is_counted_and_leaves_no_time() -> None:
    pairs = _pair_times((2.0, 4.0, 3.0, None, 2.5), (4.1, None, 5.9, None, 5.0))
    found = judge_times(pairs)
    assert (found.verdict, found.ratio) == ("unknown", None)
    assert found.reason == "3 of 10 trainings never reached it"
    side = summarise_side([other for _, other in pairs])
    assert (side.seconds, side.low, side.num_reached) == (None, None, 3)
    assert side.reason == "did not reach it in 2 of 5 seeds"


def test_disturbed_seeds_are_left_out_of_times_and_counted() -> None:
    pairs = _pair_times((2.0, 4.0, 3.0, 5.0), (4.0, 8.1, 60.0, 10.0), disturbed=(2,))
    found = judge_times(pairs)
    assert found.num_seeds == 3
    assert found.ratio == pytest.approx(2.0, rel=0.02)
    side = summarise_side([other for _, other in pairs])
    assert side.num_disturbed == 1
    assert side.seconds == pytest.approx((4 * 8.1 * 10) ** (1 / 3))
    noisy = _pair_times((2.0, 4.0), (4.0, 8.1), disturbed=(0,))
    alone = summarise_side([other for _, other in noisy])
    assert (alone.seconds, alone.reason) == (None, "was undisturbed in 1 of 2 seeds; 2 are needed")
    lonely = judge_times(noisy)
    assert lonely.reason == "both sides were undisturbed in 1 of 2 seeds; 2 are needed"


def test_times_of_a_pair_that_does_not_count_are_not_compared() -> None:
    found = judge_times(_pair_times((2.0, 4.0), (4.0, 8.0)), "the pair does not count: heat")
    assert (found.verdict, found.reason) == ("unknown", "the pair does not count: heat")
