"""Probes of metrics that have no field of their own in a result document: their values are in
`measured`. `docs/add-a-metric.md` adds one.

They run in the contender's process, after its clock has stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

from benchcore.program import Program

PROBES: Mapping[str, Callable[[], float | None]] = {}
"""By the metric's key in the start's `measured`; a probe returns None without its counter."""
_NUM_STEPS = 20
"""On known shapes, before and after new ones."""
_FEWEST, _MOST, _LIMIT_S = 3, 200, 0.5
"""Steps in NumPy, and seconds for them."""


def probe_metrics() -> dict[str, float | None]:
    """The current value of every probe."""
    return {key: probe() for key, probe in PROBES.items()}


def time_in_numpy(step: Callable[[], object] | None) -> dict[str, float | None]:
    """`numpy_step_ns`: a step's work in NumPy on the host, the median of some steps after one that
    is not timed. Empty for work that has no form in NumPy."""
    if step is None:
        return {}
    step()
    took, until = list[int](), time.monotonic() + _LIMIT_S
    while len(took) < _FEWEST or (len(took) < _MOST and time.monotonic() < until):
        began = time.perf_counter_ns()
        step()
        took.append(time.perf_counter_ns() - began)
    return {"numpy_step_ns": float(median(took))}


def measure_new_shapes(program: Program, run_steps: Callable[..., int]) -> dict[str, float | None]:
    """`new_shape_s`: seconds of the first step of a new shape, the median over several shapes.
    `after_new_shapes`: the time of a step on known shapes after the new ones over that before, of
    the fastest steps: others can only slow them down. Empty for a program with one shape.

    `run_steps(number, step)` runs steps, waits for them, and returns nanoseconds.
    """
    if program.new_shapes is None:
        return {}
    before = min(run_steps(1) for _ in range(_NUM_STEPS))
    first = [run_steps(1, partial(program.step, inputs)) for inputs in program.new_shapes()]
    after = min(run_steps(1) for _ in range(_NUM_STEPS))
    return {"new_shape_s": median(first) / 1e9, "after_new_shapes": after / before}
