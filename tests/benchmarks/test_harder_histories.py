"""The arithmetic of the harder histories."""

from __future__ import annotations

import numpy as np
import pytest
from harder_histories import NOISY, SHAPED, rate, rate_ends, simulate

from benchcore.verdict.history.detect import detect_shifts


def test_perfect_answers_score_one_and_noise_has_about_its_stated_size() -> None:
    histories = list(simulate(1, 4))
    rows = rate(histories, [history.shifts for history in histories], [0] * len(histories))
    assert [row["kind"] for row in rows] == list(NOISY + SHAPED)
    for row in rows:
        assert row["F1"] in (1.0, None)
        assert (row["null series alarmed"], row["extra shifts"]) in ((0.0, 0.0), (0.0, None))
    for history in histories:
        if not history.size:
            spread = float(np.std(np.log(history.values))) / history.noise
            assert 0.4 < spread < 4, history.kind


def test_extra_shifts_and_alarms_are_counted() -> None:
    histories = [history for history in simulate(1, 2) if history.kind == "ramp"]
    answers = [[*history.shifts, 3] for history in histories]
    row = next(each for each in rate(histories, answers, [0] * len(answers)) if each["F1"])
    assert (row["extra shifts"], row["null series alarmed"]) == (1.0, 1.0)
    assert row["F1"] == pytest.approx(2 / 4)


def test_the_share_of_shifts_at_the_end_is_counted() -> None:
    rows = rate_ends(1, lambda values: ([len(values) - 3], 1))
    assert [(row["shift"], row["suspicion"]) for row in rows] == [(1.0, 1.0)] * 4


def test_the_detector_meets_its_goals_on_a_short_form() -> None:
    """As `harder`: no class of shifts below an F1 of 0.85, and few unchanged histories alarmed."""
    histories = list(simulate(2, 6))
    found = [detect_shifts(history.values) for history in histories]
    answers = [[shift.index for shift in each.shifts] for each in found]
    rows = rate(histories, answers, [len(each.edges) for each in found])
    assert {
        row["kind"]: row["F1"] for row in rows if row["F1"] is not None and row["F1"] < 0.85
    } == {}
    assert np.mean([row["null series alarmed"] for row in rows]) <= 0.03
