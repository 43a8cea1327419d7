"""The memory of a contender's processes, counted by the kernel on a CPU; on a GPU that of the first
one, counted by the driver."""

from __future__ import annotations

import os
import resource
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell.measure import gpu
from benchcore.device_names import parse_device

if TYPE_CHECKING:
    from benchcore.cell.processes.group import Group

_PROC = Path("/proc")
_FEWEST_STEPS = 5
_RESET_PEAK = "5"  # proc(5): resets the peak to the current resident size


def take_baseline(device: str, group: Group | None = None) -> int | None:
    """Bytes in use now, after the framework's start; resets the peak."""
    if device != "cpu":
        return gpu.process_bytes(parse_device(device).ordinal, os.getpid())
    try:
        for pid in _list_pids(group):
            (_PROC / pid / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return read_peak(device, group)  # no permission: the peak then covers the whole process
    return _add(_read_status(pid, "VmRSS") for pid in _list_pids(group))


def choose_steps() -> int:
    """How many steps the peak is of. No program can foresee it, and need less memory in as many."""
    return _FEWEST_STEPS + secrets.randbelow(_FEWEST_STEPS)


def read_process(device: str, group: Group | None, baseline_bytes: int | None) -> dict[str, Any]:
    """A document's bytes of the process; its peak is at least its baseline. A reset sets the
    kernel's peak to a count that may lack pages which processors have not added yet."""
    peak = read_peak(device, group)
    least = None if peak is None else max(peak, baseline_bytes or 0)
    return {"process_baseline_bytes": baseline_bytes, "process_peak_bytes": least}


def read_peak(device: str, group: Group | None = None) -> int | None:
    """Peak bytes; of a group the sum of its processes' peaks, so shared libraries count once per
    process. On a GPU the bytes of the first process in use now: neither framework's allocator
    returns memory."""
    if device != "cpu":
        return gpu.process_bytes(parse_device(device).ordinal, os.getpid())
    return _add(_resident_peak(pid) for pid in _list_pids(group))


def _list_pids(group: Group | None) -> list[str]:
    return ["self", *map(str, group.pids if group else ())]


def _add(found: Iterable[int | None]) -> int | None:
    """The sum of counters; None where one is unknown."""
    known = list(found)
    return None if None in known else sum(each or 0 for each in known)


def _resident_peak(pid: str) -> int | None:
    """VmHWM: `ru_maxrss` may be the peak of our parent process, from before our exec."""
    peak = _read_status(pid, "VmHWM")
    if peak is not None or pid != "self":
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read_status(pid: str, key: str) -> int | None:
    try:
        lines = (_PROC / pid / "status").read_text().splitlines()
    except OSError:  # not Linux
        return None
    kib = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(kib[0]) * 1024 if kib else None
