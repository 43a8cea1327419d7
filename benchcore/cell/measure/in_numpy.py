"""Times a step's work in NumPy on the host, which both frameworks are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

_FEWEST, _MOST, _LIMIT_S = 3, 200, 0.5


def time_in_numpy(step: Callable[[], object] | None) -> dict[str, float | None]:
    """`numpy_step_ns`: the median of some steps, after one that is not timed. Empty for work that
    has no form in NumPy."""
    if step is None:
        return {}
    step()
    took, until = list[int](), time.monotonic() + _LIMIT_S
    while len(took) < _FEWEST or (len(took) < _MOST and time.monotonic() < until):
        began = time.perf_counter_ns()
        step()
        took.append(time.perf_counter_ns() - began)
    return {"numpy_step_ns": float(median(took))}
