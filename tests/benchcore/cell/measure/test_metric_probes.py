"""The first step of a new shape is timed alone, between known shapes; so is work in NumPy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import cycle

from benchcore.cell.measure.metric_probes import measure_new_shapes, time_in_numpy
from benchcore.program import Program

_KNOWN_NS = {False: 1000, True: 1500}
"""Of a step on known shapes, before and after new ones, where nothing disturbs it."""


def test_new_shapes_are_timed_between_steps_on_known_ones() -> None:
    seen: list[object] = []
    disturbed = {False: cycle((9000, 7000, 0)), True: cycle((0, 5000, 5000, 5000))}

    def run_steps(number: int, step: Callable[[], object] | None = None) -> int:
        assert number == 1
        if step is None:
            return _KNOWN_NS[bool(seen)] + next(disturbed[bool(seen)])
        return int(step())  # type: ignore[call-overload]

    def step(inputs: int) -> int:
        seen.append(inputs)
        return inputs

    shapes = [3 * 10**9, 10**9, 2 * 10**9]
    found = measure_new_shapes(Program(step=step, new_shapes=lambda: shapes), run_steps)
    assert seen == shapes
    assert found["new_shape_s"] == 2.0
    assert math.isclose(found["after_new_shapes"] or 0.0, 1.5)


def test_a_program_with_one_shape_has_none() -> None:
    assert measure_new_shapes(Program(step=lambda inputs: None), lambda number: 1) == {}


def test_the_first_of_numpys_steps_is_not_timed_and_the_median_of_the_others_is() -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.3 if calls == 1 else 0.02)

    found = time_in_numpy(step)
    took = found["numpy_step_ns"]
    assert took is not None and 2e7 <= took < 2e8
    assert 4 <= calls <= 201


def test_work_without_a_form_in_numpy_has_no_time() -> None:
    assert time_in_numpy(None) == {}
