"""Each fault in plain Python. It only hits limits that it sets for itself."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.faulty.spec import Case
from benchcore.workloads.settings import read_settings

_LATE = 200
"""Steps after which `raise_late` raises: in the first blocks, at 0.2 ms per step."""


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """A step that sleeps briefly, with the case's fault at its place."""
    healthy = read_settings(settings, ("none", "healthy")).compile == "healthy"
    fault = None if healthy else case.fault
    if fault == "raise_in_build":
        raise ValueError("this fault raises in the build")
    if fault == "hang_in_build":
        time.sleep(3600)
    go_wrong = _FAULTS.get(fault, _nothing)
    steps = 0

    def step(inputs: tuple[()]) -> None:
        nonlocal steps
        steps += 1
        go_wrong(steps)
        time.sleep(0.0002)

    def read(outputs: None) -> Mapping[str, Any]:
        return {"value": math.nan} if fault == "not_finite" else {}

    return Program(step=step, read=read)


def _nothing(steps: int) -> None:
    pass


def _run_out_of_memory(steps: int) -> None:
    """Limits its own address space first, so the machine's memory is not exhausted."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**30, hard))
    bytearray(2**31)


def _send(line: bytes) -> None:
    os.write(int(sys.argv[-1]), line)  # the pipe of the contender's answers


def _leave_a_message_unfinished(steps: int) -> None:
    _send(b'{"prepared": {"stages"')
    os._exit(1)


def _raise_late(steps: int) -> None:
    if steps > _LATE:
        raise RuntimeError("late")


_FAULTS: dict[str | None, Callable[[int], object]] = {
    "segfault": lambda steps: ctypes.string_at(0),
    "abort": lambda steps: os.abort(),
    "killed": lambda steps: os.kill(os.getpid(), signal.SIGKILL),
    "hang_in_step": lambda steps: time.sleep(3600),
    "out_of_memory": _run_out_of_memory,
    "garbage": lambda steps: _send(b"]]not json[[\n"),
    "partial_message": _leave_a_message_unfinished,
    "exit_zero": lambda steps: os._exit(0),
    "raise_late": _raise_late,
}
