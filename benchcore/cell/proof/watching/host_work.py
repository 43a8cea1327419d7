"""Finds Python's own work within a step: loops of its code, and long calls of the standard library.

Both make a side slower without a call of its framework.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from benchcore.cell.explain.python_calls import run_hooked

_LINES_PER_CALL = 10
"""Lines of a step's own code for each call that it makes; ours run 3.1 at most."""
_FEWEST_LINES = 100
_LONGEST_NS = 200_000
"""CPU time of one call that calls nothing itself; ours take microseconds."""
_TOOL = 4
"""A number that `sys.monitoring` leaves to others than debuggers and profilers."""
COMPILED = "PjitFunction"
"""Type of JAX's compiled functions."""
PACKAGES = tuple(f"{os.sep}{each}-packages{os.sep}" for each in ("site", "dist"))
"""Parts of the paths of installed packages: Debian's Python installs them in the second."""
_LIBRARIES = (
    *PACKAGES,
    f"{os.sep}lib{os.sep}python",
    *(f"{sysconfig.get_path(each)}{os.sep}" for each in ("stdlib", "platstdlib")),
    "<frozen",
)


def list_host_work(step: Callable[[], object]) -> list[str]:
    """Run one step line by line. If anything is found, run another step: only what is found twice
    is returned."""
    found = _watch(step)
    return sorted(set(found) & set(_watch(step))) if found else []


def _watch(step: Callable[[], object]) -> list[str]:
    lines, calls, found = 0, 0, []
    began: tuple[Any, int] | None = None

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return count if _is_own(frame) else None

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def hook(frame: FrameType, event: str, function: Any) -> None:
        nonlocal calls, began
        now = time.thread_time_ns()
        returned = event == "c_return" and began is not None and began[0] is function
        if returned and began and now - began[1] > _LONGEST_NS and _is_of_python(function):
            found.append(f"a long call of {function.__name__}")
        began = None
        if event == "c_call" and _is_own(frame):
            calls += 1
            began = function, time.thread_time_ns()
        elif event == "call" and not _is_own(frame):
            calls += frame.f_back is not None and _is_own(frame.f_back)

    before = sys.gettrace()
    with collecting_no_garbage():
        sys.settrace(trace)
        try:
            run_hooked(step, hook)
        finally:
            sys.settrace(before)
    if lines > _FEWEST_LINES + _LINES_PER_CALL * calls:
        found.append("lines of Python in a loop")
    return found


def _is_own(frame: FrameType) -> bool:
    return is_own_code(frame.f_code)


def is_own_code(code: CodeType) -> bool:
    """Whether code belongs neither to a package nor to Python."""
    return not any(each in code.co_filename for each in _LIBRARIES)


@contextmanager
def collecting_no_garbage() -> Iterator[None]:
    """When Python collects is chance, and what it calls then is no step's work: JAX has a function
    for it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def watch_calls(
    see: Callable[[Any], object],
    enter: Callable[[FrameType], object] | None = None,
    is_own: Callable[[CodeType], bool] = is_own_code,
) -> Iterator[None]:
    """Pass everything that own code calls to `see`, before it runs, and the frames of all functions
    that begin to `enter`. Nothing is seen before Python 3.12."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        yield
        return

    def look(code: CodeType, offset: int, called: Any, first: object) -> None:
        if is_own(code):
            see(called)

    def begin(code: CodeType, offset: int) -> None:
        if enter is not None:
            enter(sys._getframe(1))

    events = monitoring.events
    monitoring.use_tool_id(_TOOL, "deadheat")
    monitoring.register_callback(_TOOL, events.CALL, look)
    monitoring.register_callback(_TOOL, events.PY_START, begin)
    monitoring.set_events(_TOOL, events.CALL | (events.PY_START if enter else 0))
    try:
        yield
    finally:
        monitoring.set_events(_TOOL, 0)
        monitoring.register_callback(_TOOL, events.CALL, None)
        monitoring.register_callback(_TOOL, events.PY_START, None)
        monitoring.free_tool_id(_TOOL)


@contextmanager
def watch_compiled(
    see: Callable[[Any], object], read: Callable[[Mapping[str, Any]], object]
) -> Iterator[None]:
    """As `watch_calls`; and pass to `read` what a compiled function of JAX is given, by `args` and
    `kwargs`. Its fast path is closed once so that this can be read.

    Threads that run meanwhile are left out: they are a switch, and their calls depend on time.
    """
    others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
    awaited = False

    def call(called: Any) -> None:
        nonlocal awaited
        if threading.get_ident() not in others:
            see(called)
            awaited = type(called).__name__ == COMPILED and hasattr(called, "_clear_cache")
            if awaited:
                called._clear_cache()

    def enter(frame: FrameType) -> None:
        nonlocal awaited
        if awaited and threading.get_ident() not in others and "args" in frame.f_locals:
            awaited = False
            read(frame.f_locals)

    with collecting_no_garbage(), watch_calls(call, enter):
        yield


def _is_of_python(function: Any) -> bool:
    """Whether a function is builtin or belongs to the standard library."""
    module = function.__module__ or type(function.__self__).__module__
    return str(module).partition(".")[0] in sys.stdlib_module_names
