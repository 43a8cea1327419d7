"""Lists what a step does on the host besides enqueueing its work: waits, clocks, files, host
arrays, and long Python code. A fair step does none of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

from benchcore.cell.explain.python_calls import run_hooked
from benchcore.cell.proof.watching.host_time import exceeds_host_time, is_of_framework
from benchcore.cell.proof.watching.host_work import is_own_code, list_host_work, watch_calls

NONE = "none"
LONG = "too much time in Python code"
_MODULES = frozenset(
    {
        "_io", "_multiprocessing", "_posixsubprocess", "_queue", "_socket", "_thread", "datetime",
        "fcntl", "gc", "mmap", "numpy", "posix", "resource", "select", "signal", "time"
    }
)  # fmt: skip
"""Whose functions wait, read clocks or files, or work on arrays of the host."""
_NAMES = frozenset(
    {
        "__array__", "__bool__", "__float__", "__index__", "__int__", "__torch_dispatch__",
        "__torch_function__", "_cuda_sleep", "_cuda_synchronize", "_sleep", "_value", "as_tensor",
        "block_until_ready", "copy_to_host_async", "cpu", "device_get", "device_put", "equal",
        "from_dlpack", "from_numpy", "frombuffer", "is_nonzero", "is_ready", "item", "numpy",
        "pin_memory", "synchronize", "tolist"
    }
)  # fmt: skip
"""Functions of frameworks, in any module, that copy from or to the host, or wait, or that torch's
modes run around each of its calls."""
_PEEKING = frozenset(
    {
        "Tracer", "_current_frames", "_get_current_dispatch_mode",
        "_get_current_dispatch_mode_stack", "_get_current_function_mode",
        "_get_current_function_mode_stack", "_getframe", "_getframemodulename",
        "_len_torch_dispatch_stack", "_len_torch_function_stack", "cr_frame", "currentframe",
        "extract_stack", "f_back", "format_stack", "getprofile", "getrefcount", "gettrace",
        "gi_frame", "is_compiling", "is_dynamo_compiling", "is_exporting",
        "is_in_torch_dispatch_mode", "is_scripting", "is_tracing", "isenabled", "monitoring",
        "tb_frame", "trace_state_clean", "walk_stack"
    }
)  # fmt: skip
"""What shows a step's own code who calls it, or whether it is watched."""
_OUTSIDE = (
    "_cffi_backend", "_ctypes", "concurrent", "ctypes", "jax._src.config", "multiprocessing",
    "numpy", "subprocess", "threading", "torch.jit"
)  # fmt: skip
"""Packages of callables that the profiling hook may not see, as they are not built-in functions, or
that switch something within a step."""


def list_host_calls(
    step: Callable[[], object],
    by_calls: Callable[[], object] | None = None,
    seeing_operators: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[str]:
    """Names of what a step does on the host.

    Runs one step that prints warnings which a framework prints once, one under the interpreter's
    profiling hook, some to measure host time, and one line by line. `by_calls` runs a step whose
    array operators appear as calls; `seeing_operators` makes operators visible that otherwise are
    not. Results are freed while a step is watched, as that may call the step's own code.
    """
    step()
    found: set[str] = set()

    def hook(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and not _is_of_jax(frame):
            if reads_own_count(frame, function.__name__, function.__self__):
                return
            module = function.__module__ or _find_owner(function.__self__).__module__
            if module in _MODULES or function.__name__ in _NAMES:
                found.add(f"{module}.{function.__name__}")
        elif event == "call" and frame.f_code.co_name in _NAMES:
            found.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")
        if event == "call" and is_own_code(frame.f_code):
            peeks = _PEEKING.intersection(frame.f_code.co_names)
            found.update(f"a look at its caller ({each})" for each in peeks)

    with watch_calls(lambda called: found.update(_name_outside(called))):
        run_hooked(lambda: _take_and_free(step), hook)
    taken = by_calls or step
    with seeing_operators():
        if exceeds_host_time(taken):
            found.add(LONG)
    return sorted(found.union(list_host_work(lambda: _take_and_free(taken))))


def list_own_calls(
    step: Callable[[], object],
    by_calls: Callable[[], object] | None = None,
    seeing_operators: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[str]:
    """The same of a step that other processes follow: of what its own code calls alone, as
    frameworks wait for other processes themselves."""
    found: set[str] = set()

    def see(called: Any) -> None:
        found.update(_name_outside(called))
        if isinstance(called, BuiltinFunctionType):
            module = called.__module__ or _find_owner(called.__self__).__module__
            found.update([f"{module}.{called.__name__}"] if module in _MODULES else [])

    step()
    with watch_calls(see, is_own=_is_of_workload):
        step()
    taken = by_calls or step
    with seeing_operators():
        if exceeds_host_time(taken):
            found.add(LONG)
    return sorted(found.union(list_host_work(taken)))


_OF_CELL = f"{os.sep}benchcore{os.sep}cell{os.sep}"


def _is_of_workload(code: CodeType) -> bool:
    """Own code, but not what announces a step to other processes."""
    return is_own_code(code) and _OF_CELL not in code.co_filename


def _take_and_free(step: Callable[[], object]) -> None:
    step()


def _find_owner(bound: Any) -> Any:
    """The class that a method is bound to, or whose instance it is bound to."""
    return bound if isinstance(bound, type) else type(bound)


def _name_outside(called: Any) -> list[str]:
    """Name a callable that the step's own code calls: a function of a C library, or one that waits
    without being a builtin function."""
    modules = [str(getattr(each, "__module__", "")) for each in (called, type(called))]
    named = [each for each in modules if each.startswith(_OUTSIDE)]
    if getattr(called, "__name__", "") in _NAMES and is_of_framework(called):
        named.append(modules[0])
    return [f"{each}.{getattr(called, '__name__', type(called).__name__)}" for each in named[:1]]


def _is_of_jax(frame: FrameType | None) -> bool:
    """Whether JAX itself made a call, possibly through numpy. Its dispatch works on host arrays if
    a step is not jitted: the manifest's `compiled` reports that. Calls of `reprlib` are left out,
    too: eager gradients build an error's text and drop it."""
    while frame is not None and _name_package(frame) in ("numpy", "reprlib"):
        frame = frame.f_back
    return frame is not None and _name_package(frame) in ("jax", "jaxlib")


def reads_own_count(caller: FrameType, name: str, tensor: Any = None, *_: object) -> bool:
    """Whether an optimiser of torch reads its step counter, a tensor on the host. That is not a
    wait."""
    of_optimizer = str(caller.f_globals.get("__name__")).startswith("torch.optim.")
    return of_optimizer and name == "item" and tensor.device.type == "cpu"


def _name_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def join_calls(calls: Iterable[str]) -> str:
    """The manifest's reading of these calls."""
    return " ".join(sorted(set(calls))) or NONE


def is_named(name: str) -> bool:
    """Whether a framework's function of this name copies from or to the host, or waits."""
    return name in _NAMES
