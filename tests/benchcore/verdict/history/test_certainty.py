"""Change points must survive noise that the model of the noise doesn't describe."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.history import detect
from benchcore.verdict.history.certainty import drop_uncertain, long_run
from benchcore.verdict.history.change_points import Whitened
from benchcore.verdict.history.detect import detect_shifts


def _whiten(logs: np.ndarray, deviation: float = 0.01) -> Whitened:
    nights = np.arange(float(len(logs)))
    return Whitened(logs, nights, np.full(len(logs), deviation), 0.0)


def _draw(seed: int, count: int = 120, rho: float = 0.0) -> np.ndarray:
    logs = np.random.default_rng(seed).normal(size=count)
    for night in range(1, count):
        logs[night] = rho * logs[night - 1] + math.sqrt(1 - rho**2) * logs[night]
    return logs


def test_the_long_run_variance_of_correlated_nights_is_larger() -> None:
    independent = [long_run(_draw(seed), 1) for seed in range(20)]
    correlated = [long_run(_draw(seed, rho=0.6), 1) for seed in range(20)]
    assert 1.0 <= float(np.median(independent)) < 1.3
    assert float(np.median(correlated)) > 2.0  # 4 over an infinite number of lags
    assert min(independent) >= 1.0


def test_a_change_point_in_quiet_noise_remains() -> None:
    logs = 0.01 * _draw(3) + 0.03 * (np.arange(120) >= 60)
    assert drop_uncertain(_whiten(logs), [60], 0) == [60]


def test_a_change_point_whose_own_side_is_noisy_is_removed() -> None:
    logs = 0.003 * _draw(3)
    logs[100:] *= 12
    logs[100:] += 0.015 - logs[100:].mean()
    gain = _whiten(logs).fit_jumps(np.array([0]), np.array([120]), np.array([100])).gain
    assert gain[0] > 30  # far beyond the penalty for a noise of 1 %
    assert drop_uncertain(_whiten(logs), [100], 0) == []


def test_a_few_nights_are_as_noisy_as_those_before_them() -> None:
    """Three nights that agree by chance, after ten noisy ones."""
    logs = 0.01 * _draw(3)
    logs[107:117] *= 4
    logs[117:] = 0.04 + 0.001 * _draw(4, 3)
    assert drop_uncertain(_whiten(logs), [117], 0) == []
    logs[107:117] /= 4
    assert drop_uncertain(_whiten(logs), [117], 0) == [117]


def test_a_change_point_in_correlated_noise_is_removed() -> None:
    logs = 0.01 * _draw(0, rho=0.9)
    at = int(np.argmax([abs(logs[:k].mean() - logs[k:].mean()) for k in range(20, 100)])) + 20
    assert drop_uncertain(_whiten(logs), [at], 0) == []
    shifted = 0.01 * _draw(0) + 0.03 * (np.arange(120) >= at)
    assert drop_uncertain(_whiten(shifted), [at], 0) == [at]


def _draw_garch(seed: int) -> np.ndarray:
    noise, variance = np.random.default_rng(seed).normal(size=150), 1.0
    for night in range(1, 150):
        variance = 0.1 + 0.2 * noise[night - 1] ** 2 + 0.7 * variance
        noise[night] *= math.sqrt(variance)
    return 0.01 * noise


def test_fewer_unchanged_series_are_alarmed_than_without_this_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each class as often as its noise breaks the model: bursts, and correlation of two nights."""
    rng = np.random.default_rng(5)
    series = [_draw_garch(seed) for seed in range(60)]
    for _ in range(60):
        noise = rng.normal(size=150)
        for night in range(2, 150):
            noise[night] += 0.4 * noise[night - 1] + 0.2 * noise[night - 2]
        series.append(0.01 * noise)

    def count_alarmed() -> int:
        return sum(bool(detect_shifts(np.exp(logs)).shifts) for logs in series)

    with_it = count_alarmed()
    monkeypatch.setattr(
        detect, "drop_uncertain", lambda series, change_points, degree: change_points
    )
    assert with_it <= 4
    assert count_alarmed() > with_it + 2
