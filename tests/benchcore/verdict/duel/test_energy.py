"""Gross and net energy of a step."""

from __future__ import annotations

import pytest

from benchcore.verdict.duel.step_profile import step_energy


def test_net_energy_excludes_idle_power() -> None:
    measured = {"gross_mj": 500_000.0, "idle_mw": 40_000.0, "window_ns": 5e9, "steps": 1000}
    energy = step_energy(measured)
    assert energy is not None
    assert energy.gross_mj == pytest.approx(500.0)
    assert energy.net_mj == pytest.approx(300.0)


def test_windows_that_differ_give_an_interval() -> None:
    """By hand: 4, 5 and 6 mJ have a standard error of 0.577, and t of two degrees is 4.303."""
    windows = [{"gross_mj": mj * 10, "window_ns": 1, "steps": 10} for mj in (4.0, 5.0, 6.0)]
    totals = {"gross_mj": 150.0, "idle_mw": 0.0, "window_ns": 3, "steps": 30}
    energy = step_energy({**totals, "windows": windows})
    assert energy is not None
    assert energy.gross_low_mj == pytest.approx(5.0 - 4.3027 * 0.57735, rel=1e-4)
    assert energy.gross_high_mj == pytest.approx(5.0 + 4.3027 * 0.57735, rel=1e-4)


@pytest.mark.parametrize("windows", [[], [{"gross_mj": 1.0, "window_ns": 1, "steps": 1}]])
def test_one_window_has_no_interval(windows: list[dict[str, float]]) -> None:
    totals = {"gross_mj": 1.0, "idle_mw": 0.0, "window_ns": 1, "steps": 1}
    energy = step_energy({**totals, "windows": windows})
    assert energy is not None
    assert (energy.gross_low_mj, energy.gross_high_mj) == (None, None)


def test_no_counter_and_no_step_are_none_and_never_0() -> None:
    assert step_energy(None) is None
    assert step_energy({"gross_mj": 1.0, "idle_mw": 0.0, "window_ns": 1, "steps": 0}) is None
