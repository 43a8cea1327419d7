from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.history.noise import CleanNights, clean, estimate_noise, refine_noise


def _correlated(rng: np.random.Generator, count: int, rho: float) -> np.ndarray:
    logs = rng.normal(size=count)
    for night in range(1, count):
        logs[night] = rho * logs[night - 1] + math.sqrt(1 - rho**2) * logs[night]
    return logs


def _plain(logs: np.ndarray) -> CleanNights:
    count = len(logs)
    numbers = np.arange(count)
    return CleanNights(rows=numbers, logs=logs, numbers=numbers, scale=np.ones(count))


def test_single_outliers_are_removed_and_far_values_clipped() -> None:
    logs = 0.01 * np.random.default_rng(1).normal(size=100)
    logs[[20, 60]] = (0.3, 0.03)
    cleaned = clean(logs, np.arange(100))
    assert [each for each in range(len(logs)) if each not in cleaned.rows] == [20]
    assert 0.01 < cleaned.logs[59] < 0.028


def test_a_second_mode_is_not_an_outlier() -> None:
    rng = np.random.default_rng(1)
    logs = 0.002 * rng.normal(size=200) + 0.05 * (rng.random(200) < 0.3)
    assert len(clean(logs, np.arange(200)).rows) == 200


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_noise_is_estimated_across_a_shift_and_a_drift(rho: float) -> None:
    rng = np.random.default_rng(2)
    moves = 8.0 * (np.arange(2000) >= 800) + np.linspace(0, 30, 2000)
    deviation, found = estimate_noise(_plain(_correlated(rng, 2000, rho) + moves))
    assert deviation == pytest.approx(1, abs=0.12)
    assert found == pytest.approx(rho, abs=0.08)


def test_noise_is_estimated_despite_a_coarse_clock() -> None:
    ticks = 0.01 * (np.random.default_rng(3).random(200) < 0.2)
    assert estimate_noise(_plain(ticks))[0] == pytest.approx(ticks.std(), rel=0.3)


def test_few_nights_and_levels_do_not_hide_correlation() -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(300):
        logs = _correlated(rng, 45, 0.5)
        levels = np.repeat(logs.reshape(3, 15).mean(axis=1), 15)
        found.append(refine_noise(_plain(logs), levels, 3)[1])
    assert np.mean(found) == pytest.approx(0.5, abs=0.1)
