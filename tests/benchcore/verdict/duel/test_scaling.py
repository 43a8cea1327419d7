"""The efficiency of several devices, with an interval that covers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.duel.scaling import StartTimes, judge_efficiency


def _times(devices: int, *steps: float, compilations: tuple[int, ...] = ()) -> StartTimes:
    return StartTimes(
        devices=devices, logs=[math.log(each) for each in steps], compilations=compilations
    )


def test_half_the_time_on_twice_the_devices_is_full_efficiency() -> None:
    found = judge_efficiency(_times(1, 8, 8, 8), _times(2, 4, 4, 4))
    assert found is not None
    assert (found.share, found.low, found.high) == pytest.approx((1, 1, 1))
    found = judge_efficiency(_times(2, 8, 8), _times(4, 8, 8))
    assert found is not None
    assert found.share == pytest.approx(0.5)


def test_a_single_start_has_no_interval_and_none_no_efficiency() -> None:
    found = judge_efficiency(_times(1, 8), _times(2, 5, 5))
    assert found is not None
    assert (found.share, found.low, found.high) == (pytest.approx(0.8), None, None)
    assert judge_efficiency(_times(1, 8, 8), _times(2)) is None


def test_the_interval_covers_the_true_efficiency_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(1000):
        one, two = rng.normal(0, 0.01, 5), rng.normal(math.log(0.6), 0.05, 4)
        found = judge_efficiency(
            StartTimes(devices=1, logs=list(one)), StartTimes(devices=2, logs=list(two))
        )
        assert found is not None and found.low is not None and found.high is not None
        covered += found.low <= 1 / 1.2 <= found.high
    assert 930 <= covered <= 985


def test_starts_of_a_compilation_are_one_sample() -> None:
    several = (1.0, 1.0, 1.2, 1.2)
    alone, nested = (
        judge_efficiency(_times(1, 2, 2.01), _times(2, *several, compilations=compilations))
        for compilations in ((), (0, 0, 1, 1))
    )
    assert alone is not None and nested is not None
    assert alone.low is not None and nested.low is not None
    assert nested.low < alone.low
