"""Global switches of a process and of its framework: a program may not change any of them."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from benchcore.cell.proof.host_work import is_own_code
from benchcore.cell.proof.own_code import CODE, list_own_code

AS_SET = "as set"
CONFIG = "config "
"""How the names of a framework's own settings begin."""
_LATER = (CONFIG, CODE)
"""What is no change where it did not exist before."""
Switches = Mapping[str, object]


def list_process_switches() -> dict[str, object]:
    """Those of the interpreter and of the operating system, the code that measures, and the
    environment variables, but for those in which compilers leave notes for themselves, such as the
    folder of their cache."""
    variables = {
        f"variable {name}": value
        for name, value in os.environ.items()
        if not name.startswith("_") and not name.endswith("_DIR")
    }
    return {
        "garbage collection": (gc.isenabled(), gc.get_threshold(), _list_own(gc.callbacks)),
        "signals": _list_own(map(signal.getsignal, signal.valid_signals())),
        "timers": [signal.getitimer(each) != (0.0, 0.0) for each in _TIMERS],
        "threads": _list_own_threads(),
        "tiny numbers": _SMALLEST / 2 > 0,
        "switch interval": sys.getswitchinterval(),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "priority": (os.nice(0), os.sched_getscheduler(0) if sys.platform == "linux" else None),
        "CPUs": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        **variables,
        **list_own_code(),
    }


_SMALLEST = sys.float_info.min
"""Half of it is 0 where a thread flushes numbers that are too small."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _list_own(functions: Iterable[Any]) -> list[str]:
    """Names of those that are no library's, such as what runs when memory is collected."""
    codes = (getattr(each, "__code__", None) for each in functions)
    return [each.co_name for each in codes if each is not None and is_own_code(each)]


def _list_own_threads() -> list[str]:
    """Of each other thread that runs own code: the outermost function of it."""
    own = threading.get_ident()
    found = []
    for thread, frame in sys._current_frames().items():
        codes = [each.f_code for each, _ in traceback.walk_stack(frame)]
        inner = [each.co_name for each in codes if is_own_code(each)]
        found += inner[-1:] if thread != own else []
    return sorted(found)


def describe_changes(before: Switches, now: Switches) -> str:
    """The switches that differ, or that all are as they were set.

    A setting that did not exist before is none: a framework declares some where it first compiles.
    """
    unlike = [
        name
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and (name in before or not name.startswith(_LATER))
    ]
    return "; ".join(f"{name} {now.get(name)!r}" for name in unlike) or AS_SET
