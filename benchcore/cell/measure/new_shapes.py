"""Measures what shapes cost that a program has not seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from benchcore.program import Program

_NUM_STEPS = 20


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
