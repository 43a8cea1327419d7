"""Durations that lie within one another are counted once."""

from __future__ import annotations

import pytest

from benchcore.cell.measure.nested_clock import NestedClock


def _seconds(*spans: tuple[str, float, float]) -> dict[str, float]:
    clock = NestedClock(("trace", "lower", "compile"))
    for stage, began, ended in spans:
        clock.record(stage, ended - began, ended)
    return clock.seconds


def test_a_trace_within_a_trace_is_counted_once() -> None:
    seconds = _seconds(("trace", 1.0, 2.0), ("trace", 3.0, 4.0), ("trace", 0.0, 5.0))
    assert seconds == {"trace": 5.0, "lower": 0.0, "compile": 0.0}


def test_what_compiles_while_another_is_traced_is_compilation() -> None:
    seconds = _seconds(
        ("trace", 1.0, 1.5), ("lower", 1.5, 2.0), ("compile", 2.0, 4.0), ("trace", 0.0, 5.0)
    )
    assert seconds == {"trace": 2.5, "lower": 0.5, "compile": 2.0}


def test_grandchildren_are_not_taken_twice() -> None:
    assert _seconds(("trace", 2, 3), ("lower", 1, 4), ("trace", 0, 5))["trace"] == 3.0


def test_times_of_consecutive_events_add_up() -> None:
    assert _seconds(("compile", 0, 1), ("compile", 1, 2), ("compile", 7, 9))["compile"] == 4.0


def test_an_inner_event_that_began_with_the_outer_one_counts_once() -> None:
    """The listener of the outer one ran 1 ms late, so it seems to begin after the inner one."""
    clock = NestedClock(("trace",))
    clock.record("trace", 1.0, 1.0)
    clock.record("trace", 2.0, 2.001)
    assert clock.seconds["trace"] == pytest.approx(2.0)
