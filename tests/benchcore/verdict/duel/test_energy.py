"""Gross and net energy of a step."""

from __future__ import annotations

import pytest

from benchcore.verdict.duel.step_profile import step_energy


def test_net_leaves_out_what_idling_would_have_cost() -> None:
    measured = {"gross_mj": 500_000.0, "idle_mw": 40_000.0, "window_ns": 5e9, "steps": 1000}
    energy = step_energy(measured)
    assert energy is not None
    assert energy.gross_mj == pytest.approx(500.0)
    assert energy.net_mj == pytest.approx(300.0)


def test_no_counter_and_no_step_are_none_and_never_0() -> None:
    assert step_energy(None) is None
    assert step_energy({"gross_mj": 1.0, "idle_mw": 0.0, "window_ns": 1, "steps": 0}) is None
