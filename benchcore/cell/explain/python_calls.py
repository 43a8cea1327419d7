"""Counts the Python functions that a step calls: the host's work per step, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PythonCalls:
    """Calls of one step on its thread: all, those into a module system, and the step's result."""

    total: int
    modules: int
    outputs: object


def count_python_calls(
    step: Callable[[], object], is_module: Callable[[CodeType], bool]
) -> PythonCalls:
    """Run one step under the interpreter's profiling hook. The step's own call counts too."""
    counts = [0, 0]

    def hook(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counts[0] += 1
            counts[1] += is_module(frame.f_code)

    outputs = run_hooked(step, hook)
    return PythonCalls(total=counts[0], modules=counts[1], outputs=outputs)


def run_hooked(step: Callable[[], object], hook: Callable[[FrameType, str, Any], None]) -> object:
    """Run one step under the interpreter's profiling hook, on its own thread; its outputs."""
    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        return step()
    finally:
        sys.setprofile(before)
