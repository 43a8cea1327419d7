"""Reads global switches of a process and of its framework: a program must not change any of
them."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from benchcore.cell.proof.watching.host_work import is_own_code
from benchcore.cell.proof.watching.own_code import CODE, list_own_code

AS_SET = "as set"
CONFIG = "config "
"""How the names of a framework's own settings begin."""
FOLDER = "folder "
"""How the names of variables begin that hold a folder, such as that of a compiler's caches."""
_LATER = (CONFIG, CODE, FOLDER, "variable TRITON_PTXAS_")
"""How the names of switches begin that are no change if they did not exist before. Inductor names
the assembler of its CUDA build when it first compiles a kernel."""
WORK = "work between steps"
"""The name of what `works_meanwhile` finds."""
Switches = Mapping[str, object]


def list_process_switches() -> dict[str, object]:
    """Switches of the interpreter and the operating system, the code that measures, and environment
    variables. Compilers may set folders that nobody has set."""
    own_code = list_own_code()  # first: what is replaced may be put back when it is called
    variables = {
        f"variable {name}": value
        for name, value in os.environ.items()
        if not name.startswith("_") and not name.endswith(_OF_FOLDERS)
    }
    return {
        "garbage collection": (gc.isenabled(), gc.get_threshold(), _list_own(gc.callbacks)),
        "memory set aside": (gc.get_freeze_count(), gc.get_debug()),
        "signals": _list_own(map(signal.getsignal, signal.valid_signals())),
        "timers": [signal.getitimer(each) != (0.0, 0.0) for each in _TIMERS],
        "threads": _list_own_threads(),
        "tiny numbers": keeps_tiny(),
        "switch interval": sys.getswitchinterval(),
        "tracing": (sys.gettrace(), sys.getprofile(), *_list_watchers()),
        "names for perf": getattr(sys, "is_stack_trampoline_active", bool)(),
        "audit hooks": list(_audit_hooks),
        "priorities and CPUs": _list_priorities() if sys.platform == "linux" else os.nice(0),
        "process": _list_process_settings(),
        **variables,
        **list_folders(),
        **own_code,
    }


def list_folders() -> dict[str, object]:
    """The environment variables that hold a folder."""
    found = os.environ.items()
    return {f"{FOLDER}{name}": value for name, value in found if name.endswith(_OF_FOLDERS)}


def keeps_tiny() -> bool:
    """Whether this thread keeps subnormal numbers instead of flushing them to zero."""
    return _SMALLEST / 2 > 0


_OF_FOLDERS = "_DIR"
_SMALLEST = sys.float_info.min
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _list_own(functions: Iterable[Any]) -> list[str]:
    """Names of the functions that belong to no library, such as callbacks of the garbage
    collector, and of the classes of other callables."""
    return [
        getattr(each, "__name__", type(each).__name__)
        for each in filter(callable, functions)
        if _is_own(each)
    ]


def _is_own(function: Any) -> bool:
    """Whether a callable belongs to no library. An object belongs to the author of its `__call__`.
    Python's own `partial` and all classes count as own: they may call anything."""
    while type(function) is MethodType:
        function = function.__func__
    if type(function) is FunctionType:
        return is_own_code(function.__code__)
    if issubclass(type(function), type):
        return True
    for kind in type(function).__mro__:
        if (call := vars(kind).get("__call__")) is not None:
            is_plain = type(call) is FunctionType
            return is_own_code(call.__code__) if is_plain else kind.__module__ in _CALLING
    return False


_CALLING = ("functools", "operator")


def _list_watchers() -> list[object]:
    """What the interpreter calls or records besides the running code."""
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(each) for each in range(_NUM_TOOLS)] if monitoring else []
    return [tracemalloc.is_tracing(), *(each for each in tools if each)]


_audit_hooks: list[str] = []


def watch_audit_hooks() -> None:
    """Record from now on who adds an audit hook, apart from Python functions of libraries. A hook
    is called whenever somebody looks at a program, it can't be removed, and nothing else shows it.
    """
    add = sys.addaudithook

    def note(hook: Any) -> None:
        if type(hook) is BuiltinFunctionType or _is_own(hook):
            _audit_hooks.append(str(getattr(hook, "__qualname__", type(hook).__name__)))
        add(hook)

    sys.addaudithook = note


def works_meanwhile() -> bool:
    """Whether this process, or one that it started, uses CPU time or wants a CPU in each of several
    pauses of this thread. The device's queue must be empty. Processes that it started get longer to
    come to rest: on a busy machine the others of a group end their step later."""
    started = _list_started()
    for pause_s in (*_PAUSES_S, *(_LONG_PAUSES_S if started else ())):
        time.sleep(pause_s)
        began, used = time.perf_counter(), _read_used_s(started)
        time.sleep(_WAIT_S)
        least_s = _LEAST_SHARE * (time.perf_counter() - began)
        if _read_used_s(started) - used < least_s and not _wants_cpu(started):
            return False
    return True


def _list_started() -> list[Path]:
    """The other processes of this process's group, if it leads one, as a contender does. They
    freeze and thaw with it, so they slow down its own side only."""
    if os.getpgrp() != os.getpid() or sys.platform != "linux":
        return []
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if int(each.name) != os.getpid() and os.getpgid(int(each.name)) == os.getpgrp():
                found.append(each)
    return found


def _read_used_s(others: Iterable[Path]) -> float:
    """CPU time of `others` and of this process, without this thread, as it reads these times."""
    used_s = time.process_time() - time.thread_time()
    for each in others:
        with suppress(OSError):  # it has ended
            for task in each.glob("task/*/schedstat"):
                with suppress(OSError, ValueError, IndexError):
                    used_s += int(task.read_text().split()[0]) / 1e9
    return used_s


def _wants_cpu(others: Iterable[Path]) -> bool:
    """Whether a thread of this process or of `others`, except this one, runs or waits for a CPU: on
    a busy machine it may get none in a whole pause."""
    this = _TASKS / str(threading.get_native_id())
    for each in (_TASKS, *(other / "task" for other in others)):
        with suppress(OSError):  # it has ended
            for task in set(each.glob("*")) - {this}:
                with suppress(OSError):
                    if (task / "stat").read_bytes().rpartition(b") ")[2].startswith(b"R"):
                        return True
    return False


_PAUSES_S, _LONG_PAUSES_S = (0.005, 0.005, 0.005), (0.2, 1.0)
_WAIT_S, _LEAST_SHARE = 0.02, 0.1
_NUM_TOOLS = 6
_TASKS = Path("/proc/self/task")
_SETTINGS = ("NoNewPrivs:", "Seccomp", "Speculation", "THP_enabled:")
"""Lines of Linux's status of a process that are settings."""


_OF_DRIVERS = ("NCCL", "cuda")
"""How the names of threads begin that a GPU's libraries start, and place on CPUs near it."""


def _list_priorities() -> list[tuple[object, ...]]:
    """Priority, scheduler and CPUs of each thread, without repetitions."""
    found: set[tuple[object, ...]] = set()
    for task in _TASKS.iterdir():
        each = int(task.name)
        with suppress(OSError):  # it has ended
            if (task / "comm").read_text(errors="replace").startswith(_OF_DRIVERS):
                continue
            cpus = tuple(sorted(os.sched_getaffinity(each)))
            nice = os.getpriority(os.PRIO_PROCESS, each)
            found.add((nice, os.sched_getscheduler(each), cpus))
    return sorted(found)


def _list_process_settings() -> list[str]:
    """Settings that Linux shows for each thread, without repetitions."""
    found: set[str] = set()
    for each in _TASKS.glob("*/status"):
        with suppress(OSError):
            lines = each.read_text(encoding="utf-8", errors="replace").splitlines()
            found.update(line for line in lines if line.startswith(_SETTINGS))
    return sorted(found)


def _list_own_threads() -> list[str]:
    """For each other thread that runs own code, the outermost function of that code."""
    own = threading.get_ident()
    found = []
    for thread, frame in sys._current_frames().items():
        codes = [each.f_code for each, _ in traceback.walk_stack(frame)]
        inner = [each.co_name for each in codes if is_own_code(each)]
        found += inner[-1:] if thread != own else []
    return sorted(found)


def describe_changes(before: Switches, now: Switches) -> str:
    """The switches that differ, or `AS_SET`.

    A setting that did not exist before is no change: a framework declares some when it first
    compiles.
    """
    unlike = [
        name
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and (name in before or not name.startswith(_LATER))
    ]
    return "; ".join(f"{name} {now.get(name)!r}" for name in unlike) or AS_SET


class SwitchLog:
    """Compares switches at several moments with their first values. `read` lists them."""

    def __init__(self, read: Callable[[], Switches]) -> None:
        self._reads = [read]
        self._found: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """Take the present values as the first ones."""
        self._before = self._read()

    def add(self, read: Callable[[], Switches]) -> None:
        """Compare these switches, too, with their present values."""
        self._reads.append(read)
        self._before.update(read())

    def compare(self) -> None:
        """Record what differs now."""
        self._found.add(describe_changes(self._before, self._read()))

    def describe(self) -> str:
        """What differs now or differed earlier, or `AS_SET`."""
        self.compare()
        return "; ".join(sorted(self._found - {AS_SET})) or AS_SET

    def _read(self) -> dict[str, object]:
        return {name: each for read in self._reads for name, each in read().items()}
