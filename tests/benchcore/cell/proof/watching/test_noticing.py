"""A side that notices that somebody looks at it, or hides what it changed, is named."""

from __future__ import annotations

import builtins
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import time
import types
from typing import Any

import numpy as np
import pytest

from benchcore.cell.measure import timing
from benchcore.cell.proof.watching import switches
from benchcore.cell.proof.watching.switches import (
    AS_SET,
    describe_changes,
    list_process_switches,
)
from benchcore.verdict.duel.parity import ParitySide, compare_sides


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (time, "sleep", lambda seconds: None),
        (time, "thread_time_ns", lambda: 0),
        (os, "sched_getaffinity", lambda pid: {0}),
        (builtins, "ascii", lambda value: ""),
    ],
    ids=["sleep", "clock", "cpus", "builtin"],
)
def test_functions_of_python_that_the_harness_may_call_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: object
) -> None:
    before = list_process_switches()
    monkeypatch.setattr(owner, name, value)
    found = describe_changes(before, list_process_switches())
    monkeypatch.undo()
    assert f"code of {owner.__name__} replaced" in found
    assert describe_changes(before, list_process_switches()) == AS_SET


def test_a_callback_that_is_no_function_is_a_switch() -> None:
    before = list_process_switches()
    gc.callbacks.append(functools.partial(_collected, 1))
    found = describe_changes(before, list_process_switches())
    gc.callbacks.pop()
    assert found.startswith("garbage collection")
    assert "'partial'" in found


def test_a_callback_of_a_library_is_no_switch_whatever_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a function of C++, which JAX could register when it first compiles."""
    monkeypatch.setattr(gc, "callbacks", [*gc.callbacks])  # nobody calls these
    spread = types.MethodType(np.add, 1)
    before = list_process_switches()
    gc.callbacks.extend([np.add, spread, len, json.dumps])  # type: ignore[list-item]
    found = describe_changes(before, list_process_switches())
    assert found == AS_SET
    gc.callbacks.append(_Counting)
    found = describe_changes(before, list_process_switches())
    assert "'_Counting'" in found


class _Counting:
    def __init__(self, phase: str, info: dict[str, int]) -> None:
        self.phase = phase


def test_an_audit_hook_of_a_library_is_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of filelock, which Inductor imports."""
    monkeypatch.setattr(sys, "addaudithook", lambda hook: None)
    monkeypatch.setattr(switches, "_audit_hooks", [])
    switches.watch_audit_hooks()
    for hook in (json.dumps, _collected, {}.setdefault):
        sys.addaudithook(hook)  # type: ignore[arg-type]
    assert switches._audit_hooks == ["_collected", "dict.setdefault"]


def _collected(*given: object) -> None:
    pass


def test_a_side_that_reaches_beyond_its_framework_voids_its_pairs() -> None:
    settings = {"compile": "none"}
    a, b = (
        ParitySide(name=name, framework="torch", settings=settings, manifest={"reach": found})
        for name, found in (("a", "ctypes"), ("b", "none"))
    )
    found = [each for each in compare_sides(a, b, "default").violations if "reach" in each]
    assert found == ["reach of a reads 'ctypes', where 'none' is required"]


def test_a_function_that_is_put_back_when_it_is_called_is_named() -> None:
    """Of Python's own, which the harness calls while it looks."""
    before, read, seen = list_process_switches(), signal.getsignal, list[int]()

    def get(number: int) -> Any:
        seen.append(number)
        signal.getsignal = read
        return read(number)

    signal.getsignal = get  # type: ignore[assignment]
    found = describe_changes(before, list_process_switches())
    assert seen, "nobody called it"
    assert found == "code of signal replaced"


def test_nobody_that_is_looked_at_notices_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its class either, which `isinstance` asks an object for."""
    looked: list[object] = []

    class Wire:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            looked.append(self)
            return Wire

        def __getattr__(self, name: str) -> object:
            looked.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(timing, "WIRE", Wire(), raising=False)
    list_process_switches()
    assert looked == []


@pytest.mark.skipif(not hasattr(sys, "activate_stack_trampoline"), reason="Python 3.12 and later")
def test_names_of_functions_for_a_profiler_are_a_switch() -> None:
    command = [sys.executable, "-c", _NAMING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout in ("names for perf True\n", "not on this machine\n")


_NAMING = """
import sys
from benchcore.cell.proof.watching.switches import SwitchLog, list_process_switches

log = SwitchLog(list_process_switches)
try:
    sys.activate_stack_trampoline("perf")
except ValueError:
    print("not on this machine")
else:
    print(log.describe())
"""
