"""The rate of a test that knows everything, small and seeded."""

from __future__ import annotations

import math

import machine_limit
import numpy as np


def test_a_small_shift_in_much_noise_is_not_found_in_three_nights() -> None:
    small, _, large = machine_limit.measure(3, 300)
    assert small["in 3, 0.3%"] == large["in 3, 2.0%"] == 1.0
    assert small["in 3, 2.0%"] < 0.5 < small["in 9, 2.0%"]


def test_the_threshold_has_the_rate_of_false_alarms_on_other_series() -> None:
    size = math.log1p(0.03)
    limit = machine_limit._find_limit(_draw(4), size)
    false = machine_limit._list_alarms(_draw(5), size, limit).mean()
    assert 0 < false < 4 * machine_limit._GOAL
    assert machine_limit._list_alarms(_draw(5), size, limit / 20).mean() > 5 * machine_limit._GOAL


def _draw(seed: int) -> machine_limit._States:
    return machine_limit._draw(np.random.default_rng(seed), 1500, 60)
