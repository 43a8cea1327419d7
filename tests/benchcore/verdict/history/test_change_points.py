from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from benchcore.verdict.history.change_points import (
    Whitened,
    drop_spurious,
    find_peaks,
    penalty,
)

RHO = 0.6
NIGHTS = np.array([0, 1, 2, 5, 6, 9, 10, 11, 12, 30, 31, 32, 33, 34, 40, 41])
COVARIANCE = RHO ** np.abs(NIGHTS[:, None] - NIGHTS)


def _gain(logs: np.ndarray, column: np.ndarray, start: int, end: int) -> float:
    """By the textbook: generalised least squares with the whole covariance of the interval."""

    def squares(design: np.ndarray) -> float:
        weights = np.linalg.inv(0.02**2 * COVARIANCE[start:end, start:end])
        seen = logs[start:end]
        found = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ seen)
        return float((seen - design @ found) @ weights @ (seen - design @ found))

    ones = np.ones((end - start, 1))
    return squares(ones) - squares(np.hstack([ones, column[start:end, None]]))


@pytest.mark.parametrize(("start", "end", "at"), [(0, 16, 7), (0, 16, 9), (3, 12, 5), (8, 16, 14)])
def test_running_sums_are_generalised_least_squares(start: int, end: int, at: int) -> None:
    logs = np.random.default_rng(at).normal(size=16)
    series = Whitened(logs, NIGHTS, np.full(16, 0.02), RHO)
    interval = np.array([start]), np.array([end])
    fitted = series.fit_jumps(*interval, np.array([at]))
    step = (np.arange(16) >= at).astype(float)
    assert fitted.gain[0] == pytest.approx(_gain(logs, step, start, end))
    assert fitted.size[0] ** 2 / fitted.variance[0] == pytest.approx(fitted.gain[0])
    line = _gain(logs, NIGHTS.astype(float), start, end)
    assert series.line_gain(*interval)[0] == pytest.approx(line)


def test_all_steps_together_are_generalised_least_squares_too() -> None:
    logs = 0.02 * np.random.default_rng(1).normal(size=16) + 0.5 * (np.arange(16) >= 9)
    series = Whitened(logs, NIGHTS, np.full(16, 0.02), RHO)
    alone, none = series.fit([9], degree=0), series.fit([], degree=0)
    step = (np.arange(16) >= 9).astype(float)
    assert none.squares - alone.squares == pytest.approx(_gain(logs, step, 0, 16))
    straight = series.fit([], degree=1)
    line = _gain(logs, NIGHTS.astype(float), 0, 16)
    assert none.squares - straight.squares == pytest.approx(line)
    assert series.curve_gain(0, 16) == pytest.approx(line)  # so few nights have no bends
    level = series.subtract(straight.curve).fit([], degree=1)
    assert level.curve == pytest.approx(np.zeros(16), abs=1e-12)


def test_a_curve_is_generalised_least_squares_too_and_its_degrees_cost() -> None:
    nights = np.arange(40)
    logs = 0.1 * ((nights - 20) / 20) ** 2 + 0.02 * np.random.default_rng(1).normal(size=40)
    series = Whitened(logs, nights, np.full(40, 0.02), RHO)
    none, bent = series.fit([], degree=0), series.fit([], degree=2)
    assert series.curve_gain(0, 40) == pytest.approx(none.squares - bent.squares - 4)
    assert np.ptp(series.subtract(bent.curve).fit([], degree=2).curve) == pytest.approx(
        0, abs=1e-12
    )


def test_the_residuals_are_the_noise() -> None:
    rng = np.random.default_rng(1)
    nights = np.cumsum(rng.choice([1, 1, 5], 4000))
    logs = np.zeros(4000)
    for night in range(1, 4000):
        foretold = RHO ** (nights[night] - nights[night - 1])
        logs[night] = foretold * logs[night - 1] + math.sqrt(1 - foretold**2) * rng.normal()
    left = Whitened(logs, nights, np.ones(4000), RHO).fit([], degree=0).squares
    assert left / 4000 == pytest.approx(1, abs=0.06)


def test_both_more_and_fewer_nights_raise_the_requirement() -> None:
    assert penalty(1000) > penalty(150) > 2 * math.log(150)
    assert penalty(10) > penalty(60)


def test_a_line_or_a_curve_is_no_step() -> None:
    noise = 0.01 * np.random.default_rng(1).normal(size=60)
    nights = np.arange(60)
    hill = 0.1 * np.sin(nights / 10)
    for logs, kept in ((nights / 600, []), (hill, []), (0.1 * (nights >= 30), [30])):
        series = Whitened(noise + logs, nights, np.full(60, 0.01), 0.0)
        assert drop_spurious(series, [30], 0.0) == kept
        assert not drop_spurious(series, [30], 0.2)


@given(
    gains=st.lists(st.integers(0, 20), min_size=1, max_size=60),
    height=st.integers(1, 10),
    distance=st.integers(1, 12),
)
def test_peaks_are_those_of_scipy_signal(gains: list[int], height: int, distance: int) -> None:
    values = np.array(gains, float)
    expected, _ = signal.find_peaks(np.pad(values, 1), height=height, distance=distance)
    assert find_peaks(values, height, distance).tolist() == (expected - 1).tolist()
