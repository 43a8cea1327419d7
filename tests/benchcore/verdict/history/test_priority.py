"""What a night's time is spent on first."""

from __future__ import annotations

import dataclasses

import pytest

from benchcore.verdict.history.suspicions import Priority, rank_by_priority

PLAIN = Priority(id=5, log_ratio=0.05, num_confirmed=0, num_answered=0, start_s=20.0)


@pytest.mark.parametrize(
    "better",
    [
        {"log_ratio": -0.06},
        {"start_s": 10.0},
        {"num_confirmed": 3, "num_answered": 4},
        # Half as large, and confirmed far more often, at half the cost.
        {"log_ratio": 0.025, "start_s": 10.0, "num_confirmed": 9, "num_answered": 10},
    ],
)
def test_larger_cheaper_and_likelier_ones_go_first(better: dict[str, float]) -> None:
    other = dataclasses.replace(PLAIN, id=9, **better)  # type: ignore[arg-type]
    assert rank_by_priority([PLAIN, other]) == [9, 5]


def test_a_trigger_that_was_always_refuted_goes_last_and_equals_by_age() -> None:
    refuted = dataclasses.replace(PLAIN, id=1, log_ratio=0.08, num_answered=6)
    assert rank_by_priority([refuted, dataclasses.replace(PLAIN, id=7), PLAIN]) == [5, 7, 1]


def test_the_expected_value_is_of_a_second() -> None:
    assert PLAIN.expected_value == pytest.approx(0.5 * 0.05 / 20)
