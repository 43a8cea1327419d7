"""A program that changes a global switch, or a step that waits or copies, is named."""

from __future__ import annotations

import datetime
import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.measure import timing
from benchcore.cell.proof.steps import left_behind
from benchcore.cell.proof.watching import switches
from benchcore.cell.proof.watching.host_calls import LONG, NONE, join_calls, list_host_calls
from benchcore.cell.proof.watching.own_code import identify, list_timed
from benchcore.cell.proof.watching.switches import (
    AS_SET,
    SwitchLog,
    describe_changes,
    list_process_switches,
)
from benchcore.cell.runtimes.stdlib_runtime import StdlibRuntime
from benchcore.program import Program
from benchcore.workloads.mlp.spec import SPEC as MLP


def test_a_switch_of_the_process_that_was_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list_process_switches()
    assert describe_changes(before, list_process_switches()) == AS_SET
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    monkeypatch.setenv("_NOTE_OF_A_COMPILER", "1")
    assert describe_changes(before, list_process_switches()) == "variable OMP_NUM_THREADS '9'"
    monkeypatch.undo()
    enabled = gc.isenabled()
    gc.disable()
    found = describe_changes(before, list_process_switches())
    if enabled:
        gc.enable()
    assert found.startswith("garbage collection (False")


def test_what_runs_beside_the_steps_is_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, what is called when memory is collected, signals, and timers."""
    before, ended = list_process_switches(), threading.Event()

    def wait() -> None:
        ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    gc.callbacks.append(_collected)
    handler = signal.signal(signal.SIGUSR2, _collected)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000.0)
    found = describe_changes(before, list_process_switches())
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    signal.signal(signal.SIGUSR2, handler)
    gc.callbacks.remove(_collected)
    ended.set()
    thread.join()
    assert "garbage collection (True, " in found
    assert found.count("['_collected']") == 2
    threads = found.partition("threads [")[2].partition("]")[0].split(", ")
    assert "'wait'" in threads  # beside those of other tests
    assert "timers [" in found
    assert describe_changes(before, list_process_switches()) == AS_SET
    assert before["tiny numbers"]
    monkeypatch.setattr(switches, "_SMALLEST", 0.0)  # as if they were flushed to zero
    replaced = "code of benchcore.cell.proof.watching.switches replaced"
    assert describe_changes(before, list_process_switches()) == f"{replaced}; tiny numbers False"


def _collected(*given: object) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "named"),
    [
        (time, "perf_counter_ns", "code of time.perf_counter_ns replaced"),
        (timing, "run_steps", "code of benchcore.cell.measure.timing replaced"),
        (BoundProgram, "prove", "code of benchcore.cell.bound_program replaced"),
    ],
)
def test_code_that_measures_and_is_replaced_is_named(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, named: str
) -> None:
    before = list_process_switches()
    monkeypatch.setattr(owner, name, lambda *given: 0)
    assert named in describe_changes(before, list_process_switches())
    monkeypatch.undo()
    assert describe_changes(before, list_process_switches()) == AS_SET


def test_a_function_that_gets_another_body_is_named() -> None:
    before, body = list_process_switches(), timing.clock_resolution_ns.__code__
    timing.clock_resolution_ns.__code__ = (lambda: 1).__code__
    found = describe_changes(before, list_process_switches())
    timing.clock_resolution_ns.__code__ = body
    assert found == "code of benchcore.cell.measure.timing replaced"


@pytest.mark.parametrize(
    ("owner", "name", "value", "named"),
    [
        (timing, "time", SimpleNamespace(perf_counter_ns=lambda: 0), "code of benchcore.cell.meas"),
        (left_behind, "_OFF", 1e9, "code of benchcore.cell.proof.steps.left_behind replaced"),
        (BoundProgram, "inputs", property(lambda self: ()), "code of benchcore.cell.bound_program"),
        (timing.run_for, "__defaults__", (1.0,), "code of benchcore.cell.measure.timing replaced"),
        (json, "dumps", lambda document: "{}", "code of json replaced"),
        (np, "array_equal", lambda a, b: False, "code of numpy replaced"),
    ],
)
def test_whatever_the_harness_uses_may_not_be_replaced(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: object, named: str
) -> None:
    """Constants, modules, properties and defaults too, and functions that compare and report."""
    before = list_process_switches()
    monkeypatch.setattr(owner, name, value)
    assert named in describe_changes(before, list_process_switches())
    monkeypatch.undo()
    assert describe_changes(before, list_process_switches()) == AS_SET


def test_an_object_of_the_harness_that_gets_a_method_of_its_own_is_named() -> None:
    before, runtime = list_process_switches(), StdlibRuntime()
    assert describe_changes(before, list_process_switches()) == AS_SET
    runtime.synchronise = lambda outputs: None  # type: ignore[method-assign]
    found = describe_changes(before, list_process_switches())
    del runtime.synchronise
    assert found == "code of objects ['StdlibRuntime.synchronise']"


def test_a_timed_step_that_is_replaced_is_named() -> None:
    case = MLP.cases["tiny_infer"]
    program = Program(step=lambda inputs: None)
    bound = BoundProgram(program, MLP, case, MLP.make_arrays(case, 0))
    before = list_timed(bound)
    assert describe_changes(before, list_timed(bound)) == AS_SET
    bound.step = lambda: None
    assert describe_changes(before, list_timed(bound)) == "code of the timed step replaced"


def test_what_the_interpreter_does_beside_the_steps_is_a_switch() -> None:
    before = list_process_switches()
    tracemalloc.start()
    found = describe_changes(before, list_process_switches())
    tracemalloc.stop()
    assert found == "tracing (None, None, True)"
    gc.freeze()
    found = describe_changes(before, list_process_switches())
    gc.unfreeze()
    assert found.startswith("memory set aside")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists a process's threads")
def test_the_priority_of_any_thread_and_settings_of_the_process_are_switches() -> None:
    before = list_process_switches()
    found = describe_changes(before, _list_beside_a_low_thread("pool"))
    assert "priorities and CPUs [(0, " in found
    assert "(19, " in found
    assert "NoNewPrivs:" in str(before["process"])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists a process's threads")
def test_threads_of_a_gpus_libraries_may_have_a_priority_of_their_own() -> None:
    found = _list_beside_a_low_thread("NCCL Progress")["priorities and CPUs"]
    assert "(0, " in str(found) and "(19, " not in str(found)


def _list_beside_a_low_thread(name: str) -> dict[str, object]:
    """The switches while a thread of this name has the lowest priority."""
    ended, lowered = threading.Event(), threading.Event()

    def wait() -> None:
        number = threading.get_native_id()
        Path(f"/proc/self/task/{number}/comm").write_text(name)
        os.setpriority(os.PRIO_PROCESS, number, 19)
        lowered.set()
        ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    lowered.wait()
    found = dict(list_process_switches())
    ended.set()
    thread.join()
    return found


_HOOKING = """
import sys
from benchcore.cell.proof.watching.switches import SwitchLog, list_process_switches
from benchcore.cell.proof.watching.switches import watch_audit_hooks

watch_audit_hooks()
log = SwitchLog(list_process_switches)
heard = []
sys.addaudithook(lambda event, given: heard.append(event))
sys.audit("something")
print(log.describe(), "something" in heard)
"""


def test_an_audit_hook_is_a_switch() -> None:
    """No one can remove it, so it is added in another process."""
    command = [sys.executable, "-c", _HOOKING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("audit hooks ['<lambda>']")
    assert done.stdout.endswith("True\n")


def test_what_is_put_back_later_has_been_a_change() -> None:
    values = {"a": 1}
    log = SwitchLog(lambda: dict(values))
    assert log.describe() == AS_SET
    values["a"] = 2
    log.compare()
    values["a"] = 1
    assert log.describe() == "a 2"
    log.add(lambda: {"b": values["a"]})
    values["a"] = 3
    assert log.describe() == "a 2; a 3; b 3"
    log.restart()
    log.compare()
    assert log.describe() == "a 2; a 3; b 3"


class _Sleeping(list[object]):
    def __del__(self) -> None:
        time.sleep(0)


def test_functions_of_a_workloads_spec_and_of_a_framework_are_code_that_measures() -> None:
    before = list_process_switches()
    held = vars(MLP)["summarise"]
    object.__setattr__(MLP, "summarise", lambda case, steps: {})
    found = describe_changes(before, list_process_switches())
    object.__setattr__(MLP, "summarise", held)
    assert "code of benchcore.workloads.mlp.spec replaced" in found
    right = identify(np, ("copyto", "no such function"))
    assert describe_changes(right, identify(np, ("copyto", "no such function"))) == AS_SET


def test_modules_that_are_loaded_later_are_no_change() -> None:
    now = list_process_switches()
    before = {name: each for name, each in now.items() if "mlp" not in name}
    assert len(before) < len(now)
    assert describe_changes(before, now) == AS_SET


def test_a_compilers_own_variable_is_no_change_and_another_value_is() -> None:
    """Inductor names the assembler of its CUDA build when it first compiles a kernel."""
    now = {"variable TRITON_PTXAS_PATH": "/torch/bin/ptxas"}
    assert describe_changes({}, now) == "as set"
    assert "ptxas" in describe_changes({"variable TRITON_PTXAS_PATH": "/usr/bin/ptxas"}, now)
    assert "added" in describe_changes({}, {"variable OMP_NUM_THREADS": "added"})


def test_a_setting_that_a_framework_declares_later_is_no_change_of_one() -> None:
    before = {"config jax_enable_x64": False}
    assert describe_changes(before, {**before, "config jax_pallas_debug": False}) == AS_SET
    assert describe_changes(before, {"config jax_enable_x64": True}) == "config jax_enable_x64 True"
    assert describe_changes(before, {**before, "variable NEW": "1"}) == "variable NEW '1'"


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (lambda: time.sleep(0), "time.sleep"),
        (lambda: time.monotonic(), "time.monotonic"),
        (lambda: datetime.datetime.now(), "datetime.now"),
        (lambda: resource.getrusage(resource.RUSAGE_SELF), "resource.getrusage"),
        (lambda: np.asarray([1.0]), "numpy.asarray"),
        (lambda: sorted([2, 1]), NONE),
        (lambda: [each + 1 for each in range(2000)], "lines of Python in a loop"),
        (lambda: _look_up(), "a look at its caller (f_back) a look at its caller (tb_frame)"),
        (lambda: sys.getprofile(), "a look at its caller (getprofile)"),
        (lambda: [len("") for _ in range(300)], NONE),
        (lambda: sum(range(200_000)), "a long call of sum"),
        (lambda: _Sleeping([1.0]), "time.sleep"),
        (lambda: _Mode().__torch_function__(), f"{__name__}.__torch_function__"),
    ],
)
def test_what_a_step_does_on_the_host_is_named(step: Callable[[], object], named: str) -> None:
    assert join_calls(set(list_host_calls(step)) - {LONG}) == named  # since Python 3.12


_OUTSIDE = """
import ctypes, json
import jax
import numpy as np
from benchcore.cell.proof.watching.host_calls import list_host_calls

library, ones = ctypes.CDLL(None), np.ones(3)
placed, differentiate = jax.device_put(ones), jax.grad(lambda x: (x * x).sum())
calls = [
    lambda: library.usleep(1), lambda: np.add(ones, ones), lambda: jax.debug_infs(True),
    lambda: differentiate(placed),
]
print(json.dumps([list_host_calls(each) for each in [*calls, lambda: sorted([2, 1])]]))
"""


@pytest.mark.provisions
def test_calls_that_are_no_builtin_functions_are_named(
    run_in_framework: Callable[..., str],
) -> None:
    """JAX's own work for an eager gradient is no call of the step's."""
    assert json.loads(run_in_framework("jax", _OUTSIDE)) == [
        ["ctypes.usleep"],
        ["numpy.add"],
        ["jax._src.config.debug_infs"],
        [],
        [],
    ]


class _Mode:
    def __torch_function__(self) -> None:
        pass


def _look_up() -> object:
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame.f_back  # type: ignore[union-attr]


def test_what_is_printed_once_is_not_what_a_step_does() -> None:
    """torch warns once of an operator without a batching rule; that pair did not count."""
    out, printed = io.StringIO(), list[str]()

    def warn() -> None:
        if not printed:
            out.write("slow")
            printed.append("slow")

    assert list_host_calls(warn) == []
    assert list_host_calls(lambda: out.write("slow")) == ["_io.write"]


def _call_from(package: str, call: Callable[[], object]) -> Callable[[], object]:
    """A function of that package that makes the call."""
    scope: dict[str, Any] = {"__name__": f"{package}.inside", "call": call}
    exec("def step():\n    return call()", scope)  # a module's name is that of its globals
    return scope["step"]


def test_what_jax_does_itself_is_not_the_steps_and_what_it_is_handed_is() -> None:
    own = list_host_calls(_call_from("jax", time.monotonic))
    through_numpy = list_host_calls(_call_from("jax", _call_from("numpy", time.monotonic)))
    assert own == through_numpy == []
    handed = list_host_calls(_call_from("jax", lambda: time.monotonic()))
    assert handed == list_host_calls(_call_from("numpy", time.monotonic)) == ["time.monotonic"]
