"""The memory of this process, counted by the kernel on a CPU and by the driver on a GPU."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from benchcore.cell.measure import gpu
from benchcore.protocol import parse_device

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): resets the peak to the current resident size


def take_baseline(device: str) -> int | None:
    """Bytes in use now, after the framework's start; resets the peak."""
    if device != "cpu":
        return gpu.process_bytes(parse_device(device).ordinal, os.getpid())
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return _resident_peak()  # no permission: the peak then covers the whole process
    return _read_status("VmRSS")


def read_peak(device: str) -> int | None:
    """Peak bytes. On a GPU the bytes in use now: neither framework's allocator returns memory."""
    if device != "cpu":
        return gpu.process_bytes(parse_device(device).ordinal, os.getpid())
    return _resident_peak()


def _resident_peak() -> int | None:
    """VmHWM: `ru_maxrss` may be the peak of our parent process, from before our exec."""
    peak = _read_status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read_status(key: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:  # not Linux
        return None
    kib = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(kib[0]) * 1024 if kib else None
