"""Calibration runs with a known answer: how they are counted, and a rate's interval."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from benchcore.verdict.confirmation.decide import Start
from benchcore.verdict.confirmation.error_rates import (
    CalibrationRun,
    Spread,
    compute_rates,
    count,
    find_fewest_starts,
    find_smallest_visible,
    judge_run,
    measure_spread,
)


def _make_run(
    slowed: Literal["a", "b"] | None = None,
    percent: int = 0,
    *,
    moved: dict[str, float] | None = None,
    spread: float = 0.003,
    starts: int = 5,
    seed: int = 1,
) -> CalibrationRun:
    """The cells really took what `moved` contains; without it, what `slowed` implies."""
    rng = np.random.default_rng(seed)
    truth = {f"{slowed}_new": math.log1p(percent / 100)} if moved is None else moved
    levels = {"a_old": 0.0, "a_new": 0.0, "b_old": 0.3, "b_new": 0.3, "control": 0.0}

    def start() -> Start:
        shared = rng.normal(0, 0.03)
        return {
            cell: {
                number: math.exp(
                    level + truth.get(cell, 0.0) + shared + own + rng.normal(0, spread)
                )
                for number in range(6)
            }
            for cell, level in levels.items()
            for own in [rng.normal(0, spread)]
        }

    return CalibrationRun(
        number=1,
        title="mlp",
        device="d",
        slowed=slowed,
        percent=percent,
        names=("jax", "torch"),
        starts=tuple(start() for _ in range(starts)),
    )


def _flags(trial: CalibrationRun) -> tuple[bool, bool, bool]:
    outcome = judge_run(trial)
    return outcome.alarm, outcome.found, outcome.right


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("percent", [2, 5])
def test_a_slow_down_is_found_and_its_side_named(side: Literal["a", "b"], percent: int) -> None:
    trial = _make_run(side, percent, spread=0.001)
    assert _flags(trial) == (True, True, True)
    effect = judge_run(trial).effect
    assert effect is not None
    assert math.expm1(effect) == pytest.approx(percent / 100, abs=0.003)


def test_no_alarm_is_raised_if_nothing_moved() -> None:
    assert _flags(_make_run()) == (False, False, False)
    assert judge_run(_make_run()).effect is None


def test_an_alarm_where_nothing_was_done_is_a_false_one() -> None:
    assert _flags(_make_run(moved={"b_new": 0.05})) == (True, False, False)
    # The control that moves alone would be called infrastructure, which is an event, too.
    assert _flags(_make_run(moved={"control": 0.05})) == (True, False, False)


def test_a_slow_down_within_the_noise_is_missed() -> None:
    assert _flags(_make_run("a", 2, spread=0.02)) == (False, False, False)


def test_a_slow_down_that_seems_a_speed_up_is_not_found() -> None:
    assert _flags(_make_run("a", 5, moved={"a_new": -0.05})) == (True, False, False)


def test_blaming_the_other_side_or_both_is_no_right_attribution() -> None:
    both = _make_run("a", 5, moved={"a_new": 0.05, "b_new": -0.05})
    assert _flags(both) == (True, True, False)
    control = _make_run("a", 5, moved={"a_new": 0.05, "control": 0.05})
    assert _flags(control) == (True, True, False)


def test_every_run_is_counted_once_by_its_outcome() -> None:
    runs = [
        *(_make_run(seed=seed) for seed in range(6)),
        _make_run(moved={"b_new": 0.06}),
        *(_make_run("a", 5, seed=seed) for seed in range(3)),
        _make_run("b", 5, moved={}),
        _make_run("b", 2, spread=0.02),
        _make_run("a", 5, moved={"a_new": 0.05, "b_new": -0.05}),
    ]
    rates = compute_rates([judge_run(each) for each in runs])
    counted = {name: (rate.hits, rate.total) for name, rate in rates.items()}
    assert counted == {
        "false alarms": (1, 7),
        "+5 % found": (4, 5),
        "+2 % found": (0, 1),
        "alarms that were right": (4, 5),
        "right culprit": (3, 4),
    }
    assert all(rate.too_few for rate in rates.values())


def test_intervals_are_exact_and_few_runs_are_reported_as_few() -> None:
    none = count([False] * 10)
    assert (none.share, none.low, none.too_few) == (0.0, 0.0, False)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 10))  # Clopper and Pearson (1934)
    half = count([True, False] * 10)
    assert (half.low, half.high) == (pytest.approx(0.2720, abs=1e-4), pytest.approx(0.7280, 1e-4))
    assert count([True] * 9).too_few
    empty = count([])
    assert (empty.share, empty.low, empty.high, empty.too_few) == (None, None, None, True)


def test_false_alarms_are_as_rare_as_confirmations_promise() -> None:
    outcomes = [judge_run(_make_run(seed=seed)) for seed in range(200)]
    rate = compute_rates(outcomes)["false alarms"]
    assert rate.total == 200
    assert rate.hits <= 6  # 1 % nominal, less what is within the bound of 2 %


@pytest.mark.parametrize("num_starts", [3, 5, 12])
def test_the_smallest_effect_is_found_in_four_of_five_cases(num_starts: int) -> None:
    rng = np.random.default_rng(3)
    spread = 0.01
    nights = [rng.normal(level, spread, 5) for level in rng.normal(0.3, 0.1, 300)]
    smallest = find_smallest_visible(nights, num_starts)
    assert smallest is not None
    found = stats.ttest_1samp(rng.normal(smallest, spread, (4000, num_starts)), 0, axis=1)
    assert np.mean(found.pvalue <= 0.01) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("shift", [0.008, 0.02, 0.05])
def test_the_fewest_starts_find_the_change_in_nineteen_of_twenty_cases(shift: float) -> None:
    rng = np.random.default_rng(4)
    spread = Spread(starts=0.01, nights=None)
    fewest = find_fewest_starts(spread, shift)
    assert fewest is not None
    found = stats.ttest_1samp(rng.normal(shift, 0.01, (4000, fewest)), 0, axis=1)
    power = float(np.mean(found.pvalue <= 0.01))
    assert power >= 0.94
    if fewest > 5:
        found = stats.ttest_1samp(rng.normal(shift, 0.01, (4000, fewest - 1)), 0, axis=1)
        assert float(np.mean(found.pvalue <= 0.01)) < 0.96
    assert find_fewest_starts(spread, shift / 100) is None


def test_the_spread_of_nights_is_what_starts_do_not_explain() -> None:
    rng = np.random.default_rng(5)
    for between in (0.0, 0.03):
        nights = [rng.normal(level, 0.01, 4) for level in rng.normal(0, between, 400)]
        spread = measure_spread(nights)
        assert spread is not None and spread.nights is not None
        assert spread.starts == pytest.approx(0.01, rel=0.1)
        assert spread.nights == pytest.approx(between, abs=0.003)
    assert measure_spread([[0.1, 0.2]] * 7) is None


@pytest.mark.parametrize(
    "nights",
    [[], [[0.1]] * 50, [[0.1, 0.2]] * 7, [[0.1, 0.1, 0.1]] * 20],
    ids=["no night", "single starts", "few nights", "no spread"],
)
def test_a_series_that_is_hardly_known_has_no_smallest_effect(nights: Any) -> None:
    assert find_smallest_visible(nights) is None
