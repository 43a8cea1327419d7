"""Measures the CPU time that a step spends in Python itself: in its own code, and in what it calls
outside of its framework, such as many short calls, a long line, or a function of the standard
library.

A call of the framework in which no operator and no compiled function runs counts as such time, too:
a walk through a long list.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from benchcore.cell.nested import list_arrays
from benchcore.cell.proof.watching.host_work import PACKAGES, collecting_no_garbage

_FRAMEWORKS = (
    "flax", "functorch", "jax", "jaxlib", "opacus", "optax", "torch", "torchvision", "triton"
)  # fmt: skip
"""Packages whose work is a step's work."""
_FOLDERS = tuple(f"{folder}{each}{os.sep}" for folder in PACKAGES for each in _FRAMEWORKS)
_TOOL = 3
"""A number that `sys.monitoring` leaves to others than debuggers and profilers."""
_RUNS, _TRIALS = 8, 20
_FREE_NS, _FREE_PER_CALL_NS, _FREE_PER_ARRAY_NS, _FREE_SHARE = 25_000, 10_000, 2_000, 0.05
"""What a step may take where empty calls take as long as `_EMPTY_NS`, and as much more for each
call of its framework, for each array that it returns (a later step frees it), and as a share of its
CPU time. Our tiny steps take at most 0.6 of it."""
_IDLE, _IDLE_SHARE = 10, 0.1
"""Calls of a framework that run nothing on the device: how many more there may be than of others,
and their share of the step's CPU time that is free; ours take up to 6 %, in eager JAX."""
_EMPTY_NS = 45_000
"""Of `_call_often`, on a quiet Xeon."""


def exceeds_host_time(step: Callable[[], object]) -> bool:
    """Whether Python's own work takes too long in each of several steps. Always False before Python
    3.12, which has no `sys.monitoring`."""
    if getattr(sys, "monitoring", None) is None:
        return False
    empty_ns = min(Watch().measure(_call_often).own_ns for _ in range(_TRIALS))
    slower = max(1.0, empty_ns / _EMPTY_NS)
    for _ in range(_RUNS):
        took = Watch().measure(step)
        free_ns = _FREE_NS + _FREE_PER_CALL_NS * took.calls + _FREE_PER_ARRAY_NS * took.arrays
        if took.own_ns <= slower * free_ns + _FREE_SHARE * took.whole_ns:
            return False
    return True


def _call_often() -> None:
    for _ in range(_TRIALS):
        _call_nothing()


def _call_nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Took:
    """CPU time in nanoseconds, of Python's own work and of all threads; number of calls of a
    framework, and of arrays that the step returned."""

    own_ns: int
    whole_ns: int
    calls: int
    arrays: int


@dataclass(eq=False)
class _Call:
    """A call of a framework by other code."""

    took_ns: int = 0
    """Without what it calls outside of the framework."""
    works: bool = False
    """Whether an operator or a compiled function runs in it."""


_COMPILED = ("PjitFunction", "PmapFunction", "execute_sharded")
"""JAX's compiled functions: their classes, and how those that were compiled ahead are run."""
_DISPATCHERS = ("__torch_dispatch__", "bind")
"""What torch calls for each operator, while the harness watches them (`watch_operators`), and JAX
for each that it runs where nothing is compiled."""
_OF_DISPATCHER = f"{os.sep}explain{os.sep}torch_products.py"


class Watch:
    """Attributes a thread's CPU time to the code that runs between two events of the
    interpreter."""

    def __init__(self) -> None:
        self._stack: list[tuple[object, _Call | None]] = []
        """What runs now, outermost first, and the call of a framework whose work it is."""
        self._made: list[_Call] = []
        self._spent_ns, self._last_ns = 0, 0
        self._thread = threading.get_ident()
        self._known: dict[CodeType, bool | None] = {}

    def measure(self, step: Callable[[], object]) -> Took:
        """Run one step and measure it."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # since Python 3.12
        events, callbacks = monitoring.events, self._list_callbacks(monitoring.events)
        monitoring.use_tool_id(_TOOL, "deadheat")
        for event, callback in callbacks.items():
            monitoring.register_callback(_TOOL, event, callback)
        chosen = 0
        for event in callbacks:
            chosen |= 0 if event in (events.C_RETURN, events.C_RAISE) else event
        with collecting_no_garbage():
            began, self._last_ns = time.process_time_ns(), time.thread_time_ns()
            monitoring.set_events(_TOOL, chosen)
            try:
                outputs = step()
            finally:
                monitoring.set_events(_TOOL, 0)
                for event in callbacks:
                    monitoring.register_callback(_TOOL, event, None)
                monitoring.free_tool_id(_TOOL)
        whole_ns = time.process_time_ns() - began
        idle_ns = sum(each.took_ns for each in self._made if not each.works)
        return Took(
            own_ns=self._spent_ns + max(0, idle_ns - round(_IDLE_SHARE * whole_ns)),
            whole_ns=whole_ns,
            calls=self._count_calls(),
            arrays=sum(1 for _ in list_arrays(outputs)),
        )

    def _count_calls(self) -> int:
        """Number of calls that get a share of free time: those that run an operator, as many
        others, and a few more to enter contexts and look up layers."""
        works = sum(each.works for each in self._made)
        return works + min(len(self._made) - works, works + _IDLE)

    def _list_callbacks(self, events: Any) -> dict[int, Callable[..., None]]:
        entering = (events.PY_START, events.PY_RESUME, events.PY_THROW)
        leaving = (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND)
        ending = (events.C_RETURN, events.C_RAISE)
        found = {
            **dict.fromkeys(entering, self._enter),
            **dict.fromkeys(leaving, self._leave),
            **dict.fromkeys(ending, self._leave_c),
            events.CALL: self._call,
        }
        return {event: self._stamp(callback) for event, callback in found.items()}

    def _stamp(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Wrap a callback: it runs for the watched thread only, and its own time is not counted."""

        def run(code: CodeType, offset: int, called: object = None, *_: object) -> None:
            if threading.get_ident() == self._thread:
                self._note()
                callback(code, called)
                self._last_ns = time.thread_time_ns()

        return run

    def _note(self) -> None:
        """Add the time since the last event to the code that ran."""
        took = time.thread_time_ns() - self._last_ns
        if call := self._find_call():
            call.took_ns += took
        else:
            self._spent_ns += took

    def _enter(self, code: CodeType, _: object) -> None:
        self._push(code, self._judge_code(code))
        if code.co_name in _DISPATCHERS:
            self._mark()

    def _leave(self, code: CodeType, _: object) -> None:
        self._pop(code)

    def _call(self, code: CodeType, called: object) -> None:
        if not _is_of_python(called):
            self._push(_IN_C, True if is_of_framework(called) else None)
        if type(called).__name__ in _COMPILED or getattr(called, "__name__", "") in _COMPILED:
            self._mark()

    def _mark(self) -> None:
        """Mark all running calls as working."""
        for _, call in self._stack:
            if call is not None:
                call.works = True

    def _leave_c(self, code: CodeType, _: object) -> None:
        self._pop(_IN_C)

    def _push(self, what: object, of_framework: bool | None) -> None:
        call = self._find_call()
        if of_framework and call is None:
            call = _Call()
            self._made.append(call)
        # a library works for who calls it
        self._stack.append((what, None if of_framework is False else call))

    def _find_call(self) -> _Call | None:
        """The framework's call that runs now, if any."""
        return self._stack[-1][1] if self._stack else None

    def _pop(self, what: object) -> None:
        for place in reversed(range(len(self._stack))):
            if self._stack[place][0] is what:
                del self._stack[place:]
                return

    def _judge_code(self, code: CodeType) -> bool | None:
        """True for a framework's code, False for a workload's, None for any other."""
        if code not in self._known:
            of_framework = any(each in code.co_filename for each in _FOLDERS)
            own = f"{os.sep}benchcore{os.sep}" in code.co_filename
            own = own and not code.co_filename.endswith(_OF_DISPATCHER)
            self._known[code] = True if of_framework else (False if own else None)
        return self._known[code]


_IN_C = object()


def _is_of_python(called: Any) -> bool:
    """Whether calling it enters a function of Python, which is an event of its own."""
    return hasattr(getattr(called, "__func__", called), "__code__")


def is_of_framework(called: Any) -> bool:
    """Whether a callable belongs to a framework."""
    called = getattr(called, "func", called)  # of a partial function
    owner = getattr(called, "__self__", None)
    owners = (called, type(called), getattr(called, "__objclass__", None), owner, type(owner))
    modules = (str(getattr(each, "__module__", "")) for each in owners)
    return any(each.partition(".")[0] in _FRAMEWORKS for each in modules)
