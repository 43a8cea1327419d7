from __future__ import annotations

import time

from benchcore.cell.measure.in_numpy import time_in_numpy


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
