from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.history.detect import Detection, detect_shifts


def _nights(seed: int, count: int = 120, noise: float = 0.01, rho: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=count)
    for night in range(1, count):
        logs[night] = rho * logs[night - 1] + math.sqrt(1 - rho**2) * logs[night]
    return noise * logs


def _find(logs: np.ndarray, nights: np.ndarray | None = None) -> Detection:
    return detect_shifts(0.2 * np.exp(logs), nights)


def _step(count: int, at: int, size: float) -> np.ndarray:
    return math.log1p(size) * (np.arange(count) >= at)


@pytest.mark.parametrize("size", [0.05, -0.05])
@pytest.mark.parametrize("at", [15, 60, 116])
def test_a_shift_is_reported_with_its_place_levels_and_interval(at: int, size: float) -> None:
    held = 0
    for seed in range(20):
        [shift] = _find(_nights(seed) + _step(120, at, size)).shifts
        assert abs(shift.index - at) <= 2
        assert shift.before == pytest.approx(0.2, rel=0.015)
        assert shift.after == pytest.approx(0.2 * (1 + size), rel=0.02)
        assert shift.ratio == pytest.approx(shift.after / shift.before)
        held += shift.low <= 1 + size <= shift.high
    assert held >= 17


def test_three_nights_at_a_new_level_are_a_shift_and_one_is_a_suspicion() -> None:
    three, one = 0, 0
    for seed in range(40):
        found = _find(_nights(seed) + _step(120, 117, 0.08))
        three += [shift.index for shift in found.shifts] == [117]
        found = _find(_nights(seed) + _step(120, 119, 0.08))
        assert not found.shifts
        one += [each.index for each in found.edges] == [119]
    assert three >= 38 and one >= 38


def test_a_single_outlier_within_a_series_is_neither_a_shift_nor_a_suspicion() -> None:
    for seed in range(20):
        logs = _nights(seed)
        logs[[20, 50, 51, 90]] += (0.3, 0.2, -0.2, -0.1)
        assert _find(logs) == Detection(), seed


def test_outliers_do_not_hide_a_shift() -> None:
    for seed in range(20):
        logs = _nights(seed) + _step(120, 70, 0.05)
        logs[[10, 30, 69, 72, 100]] += (0.3, -0.2, 0.2, 0.25, -0.3)
        [shift] = _find(logs).shifts
        assert abs(shift.index - 70) <= 2


@pytest.mark.parametrize(("rho", "most"), [(0.0, 1), (0.3, 2), (0.6, 3)])
def test_correlated_nights_are_no_shifts(rho: float, most: int) -> None:
    """Without the correlation, every third history of 0.6 would have one at least."""
    assert sum(bool(_find(_nights(seed, rho=rho)).shifts) for seed in range(60)) <= most


def test_a_shift_and_its_reversal_are_both_found() -> None:
    for seed in range(10):
        logs = _nights(seed) + _step(120, 50, 0.05) - _step(120, 66, 0.05)
        first, second = _find(logs).shifts
        assert (abs(first.index - 50), abs(second.index - 66)) <= (2, 2)
        assert first.ratio > 1 > second.ratio


def test_two_shifts_of_few_nights_are_not_taken_for_correlation() -> None:
    """Each fourth history had none when noise was only guessed from the nights' differences."""
    for seed in range(40):
        logs = _nights(seed, 30) + _step(30, 10, 0.06) + _step(30, 19, 0.06)
        first, second = _find(logs).shifts
        assert (abs(first.index - 10), abs(second.index - 19)) <= (2, 2), seed


def test_intervals_hold_also_where_few_nights_are_correlated() -> None:
    """87 of these 100 did when each night counted as a whole one."""
    held = num_found = 0
    for seed in range(100):
        for shift in _find(_nights(seed, 40, rho=0.6) + _step(40, 20, 0.1)).shifts:
            if shift.index == 20:
                held, num_found = held + (shift.low <= 1.1 <= shift.high), num_found + 1
    assert num_found >= 90 and held / num_found >= 0.92


def test_drift_is_reported_and_is_no_shift() -> None:
    shifts, drifts = 0, []
    for seed in range(30):
        found = _find(_nights(seed, 150, 0.005) + np.linspace(0, 0.1, 150))
        shifts += len(found.shifts)
        drifts += [found.drift or 1.0]
    assert shifts <= 1
    assert np.median(drifts) == pytest.approx(math.exp(0.1), abs=0.01)


_SLOW = {
    "late": np.maximum(np.linspace(-0.1, 0.1, 120), 0),
    "bent": 0.1 * np.linspace(0, 1, 120) ** 2,
    "wave": 0.03 * np.sin(np.linspace(0, 7, 120)),
}


@pytest.mark.parametrize("kind", _SLOW)
def test_a_curved_drift_is_not_split_into_shifts(kind: str) -> None:
    """Each history had one to three shifts when a drift was a straight line or none."""
    found = [_find(_nights(seed) + _SLOW[kind]) for seed in range(30)]
    assert sum(len(each.shifts) for each in found) <= 3
    assert sum(len(each.edges) for each in found) <= 2
    assert sum(each.drift is not None for each in found) >= 28


@pytest.mark.parametrize("kind", _SLOW)
def test_a_shift_beside_a_curved_drift_is_found(kind: str) -> None:
    hits = shifts = 0
    for seed in range(20):
        found = _find(_nights(seed) + _SLOW[kind] + _step(120, 50, 0.1)).shifts
        hits += any(abs(shift.index - 50) <= 2 for shift in found)
        shifts += len(found)
    assert hits >= 19 and shifts <= 24


def test_a_shift_beside_a_drift_is_found() -> None:
    found = _find(_nights(1, 150, 0.005) + np.linspace(0, 0.06, 150) - _step(150, 80, 0.08))
    [shift] = found.shifts
    assert abs(shift.index - 80) <= 1
    assert shift.ratio == pytest.approx(1 / 1.08, abs=0.01)


def test_a_shift_beside_a_drift_may_be_too_small_to_matter() -> None:
    found = 0
    for seed in range(10):
        logs = _nights(seed, 150, 0.001) + np.linspace(0, 0.03, 150) - _step(150, 80, 0.008)
        assert not _find(logs).shifts
        found += bool(detect_shifts(np.exp(logs), smallest_shift=0.004).shifts)
    assert found >= 8


def test_a_weak_shift_in_the_last_nights_is_found() -> None:
    found = [bool(_find(_nights(seed) + _step(120, 115, 0.022)).shifts) for seed in range(60)]
    assert sum(found) >= 40


def test_two_last_nights_at_a_new_level_are_a_shift_or_a_suspicion() -> None:
    answers = [_find(_nights(seed) + _step(120, 118, 0.05)) for seed in range(60)]
    assert not any(each.shifts and each.edges for each in answers)
    assert sum(bool(each.shifts or each.edges) for each in answers) >= 57


def test_a_single_last_night_is_a_suspicion_and_hardly_ever_a_shift() -> None:
    answers = [_find(_nights(seed) + _step(120, 119, 0.05)) for seed in range(60)]
    assert sum(bool(each.edges) for each in answers) >= 30
    assert sum(bool(each.shifts) for each in answers) <= 1


def test_two_last_outliers_must_both_be_far_off() -> None:
    shifts = 0
    for seed in range(40):
        logs = _nights(seed)
        logs[-2:] += (0.015, 0.3)
        shifts += bool(_find(logs).shifts)
    assert shifts <= 1


def test_noise_that_grows_is_no_shift() -> None:
    shifts = 0
    for seed in range(40):
        logs = _nights(seed, 150)
        logs[75:] *= 4
        shifts += bool(_find(logs).shifts)
    assert shifts <= 2


def test_two_kinds_of_nodes_are_noise_and_not_shifts() -> None:
    shifts = 0
    for seed in range(30):
        slow_node = np.random.default_rng(seed + 100).random(120) < 0.3
        shifts += bool(_find(_nights(seed) + 0.05 * slow_node).shifts)
    assert shifts <= 2


def test_rows_are_counted_also_where_nights_are_missing() -> None:
    logs = _nights(3) + _step(120, 60, 0.05)
    logs[[5, 6, 30, 58, 90]] = math.nan
    assert [shift.index for shift in _find(logs).shifts] == [60]
    present = ~np.isnan(logs)
    [shift] = _find(logs[present], np.flatnonzero(present)).shifts
    assert shift.index == 56


def test_a_shift_smaller_than_the_smallest_is_none() -> None:
    logs = _nights(1, noise=0.001) + _step(120, 60, 0.006)
    assert not _find(logs).shifts
    [shift] = detect_shifts(np.exp(logs), smallest_shift=0.005).shifts
    assert shift.index == 60


def test_the_unit_of_the_values_does_not_matter() -> None:
    logs = _nights(4) + _step(120, 40, 0.05)
    one, other = detect_shifts(np.exp(logs)), detect_shifts(1e-9 * np.exp(logs))
    assert [shift.index for shift in one.shifts] == [shift.index for shift in other.shifts]
    assert one.shifts[0].ratio == pytest.approx(other.shifts[0].ratio)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "at least 10 nights, got 0"),
        ([1.0], "at least 10 nights, got 1"),
        ([1.0] * 9 + [math.nan] * 9, "at least 10 nights, got 9"),
        ([0.25] * 50, "equal to the last digit"),
    ],
)
def test_an_empty_or_short_series_has_no_shift(values: list[float], words: str) -> None:
    found = detect_shifts(np.array(values))
    assert words in found.unknown
    assert not found.shifts and not found.edges


def test_shifts_are_found_despite_a_coarse_clock() -> None:
    assert [s.index for s in detect_shifts(np.repeat([1.0, 1.1], [30, 30])).shifts] == [30]
    rng = np.random.default_rng(2)
    ticks = np.round(100 + (rng.random(90) < 0.2) + 5 * (np.arange(90) >= 50))
    assert [s.index for s in detect_shifts(ticks / 100).shifts] == [50]
    assert not detect_shifts(np.round(100 + (rng.random(90) < 0.2)) / 100).shifts


@pytest.mark.parametrize("seed", range(5))
def test_extreme_values_raise_no_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for count in (10, 11, 17, 40):
        for spread in (1e-12, 1.0, 200.0):
            detect_shifts(np.exp(spread * rng.standard_cauchy(count).clip(-3, 3)))


def test_levels_at_the_limits_of_a_float_raise_no_error() -> None:
    values = np.exp(_nights(1, 60)) * np.repeat([1e-300, 1e300], 30)
    [shift] = detect_shifts(values).shifts
    assert shift.index == 30 and math.isfinite(shift.high)
    assert math.isfinite(detect_shifts(values[:31]).edges[0].ratio)


def test_a_million_nights_are_judged() -> None:
    found = _find(_nights(1, 2)[0] + 0.01 * np.random.default_rng(1).normal(size=1_000_000))
    assert len(found.shifts) <= 1


def test_a_shift_every_twenty_nights_is_found() -> None:
    logs = 0.01 * np.random.default_rng(1).normal(size=2000)
    logs += 0.05 * (np.arange(2000) // 20 % 2)
    assert len(_find(logs).shifts) == pytest.approx(99, abs=1)


def test_a_ramp_of_ten_nights_is_one_shift() -> None:
    ramp = 0.1 * np.clip((np.arange(100) - 45) / 10, 0, 1)
    found = [_find(_nights(seed, 100) + ramp).shifts for seed in range(20)]
    assert max(map(len, found)) == 1
    assert sum(abs(shift.index - 50) <= 4 for shifts in found for shift in shifts) >= 18


def test_two_nights_off_are_no_level_unless_they_are_the_last() -> None:
    left, last = 0, 0
    for seed in range(20):
        logs = _nights(seed, 60)
        logs[30:32] += 0.05
        left += bool(_find(logs).shifts)
        last += [shift.index for shift in _find(logs[:32]).shifts] == [30]
    assert left <= 1
    assert last >= 15


def test_a_short_spell_of_loud_noise_is_no_shift_and_a_large_one_is_two() -> None:
    """Noise whose size changes smoothly strays for some nights and comes back."""
    wave = np.exp(0.7 * np.sin(np.arange(150) / 150 * 2 * np.pi))
    found = [_find(_nights(seed, 150) * wave).shifts for seed in range(40)]
    assert sum(map(bool, found)) <= 4
    spell = 0.1 * ((np.arange(100) >= 50) & (np.arange(100) < 56))
    assert [len(_find(_nights(seed, 100) + spell).shifts) for seed in range(5)] == [2] * 5
