"""Two modes: found where there are two, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.history.detect import detect_shifts
from benchcore.verdict.history.modes import describe_modes, find_modes


def _two(seed: int, count: int = 60, share: float = 0.3, apart: float = 0.06) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.01, count) + apart * (rng.random(count) < share)


def test_two_modes_are_found_with_their_distance_and_share() -> None:
    found = [find_modes(_two(seed)) for seed in range(100)]
    known = [each for each in found if each is not None]
    assert len(known) >= 95
    assert np.mean([each.ratio for each in known]) == pytest.approx(math.exp(0.06), abs=0.005)
    assert np.mean([each.share for each in known]) == pytest.approx(0.3, abs=0.03)
    assert f"{100 * known[0].share:.0f} % of nights are" in describe_modes(known[0])


@pytest.mark.parametrize("kind", ["white", "heavy tails", "correlated"])
@pytest.mark.parametrize("count", [20, 60])
def test_noise_of_one_mode_is_not_taken_for_two(kind: str, count: int) -> None:
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(500):
        logs = rng.standard_t(3, count) if kind == "heavy tails" else rng.normal(size=count)
        if kind == "correlated":
            for night in range(1, count):
                logs[night] = 0.6 * logs[night - 1] + 0.8 * logs[night]
        false += find_modes(0.01 * logs) is not None
    assert false <= 2


def test_a_spell_a_few_nights_or_a_tiny_distance_make_no_mode() -> None:
    spell = np.random.default_rng(1).normal(0, 0.01, 40) + 0.08 * ((np.arange(40) // 10) == 1)
    assert find_modes(spell) is None
    assert find_modes(_two(1, count=19)) is None
    assert find_modes(0.05 * _two(1)) is None
    assert find_modes(np.zeros(30)) is None


def test_a_history_reports_modes_and_its_shift() -> None:
    """The shift is no mode, and the modes are no shift."""
    found = detect_shifts(np.exp(_two(5, 120) + 0.3 * (np.arange(120) >= 70)))
    assert [abs(each.index - 70) <= 2 for each in found.shifts] == [True]
    assert found.modes is not None
    assert found.modes.ratio == pytest.approx(math.exp(0.06), abs=0.01)
    quiet = np.random.default_rng(2).normal(0, 0.01, 120) + 0.1 * (np.arange(120) >= 70)
    assert detect_shifts(np.exp(quiet)).modes is None
