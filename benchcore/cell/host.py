"""What machine this is, and how disturbed it was: read from the kernel, without a library."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from benchcore.cell import gpu

_PROC = Path("/proc")
_SYS_CPU = Path("/sys/devices/system/cpu")


def usable_cpus() -> int:
    """How many CPUs this process may use: its affinity, not the machine's size."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_host() -> dict[str, Any]:
    """CPU model, CPUs in use, memory, the caches they reach (None = not told), and the system."""
    return {
        "cpu_model": _cpu_model(),
        "cpus": usable_cpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cache_bytes": _cache_bytes(),
        "system": f"{platform.system()} {platform.release()}",
    }


def describe_device(device: str) -> dict[str, Any]:
    """What a series is tied to: model, count, memory, driver. Never a host's name."""
    if device == "cpu":
        host = describe_host()
        facts = {
            "name": device,
            "kind": "cpu",
            "model": host["cpu_model"],
            "count": host["cpus"],
            "memory_bytes": host["memory_bytes"],
            "driver": None,
        }
    else:
        facts = {"name": device, "kind": "gpu", "count": 1, **gpu.describe(gpu.index_of(device))}
    return {**facts, "fingerprint": _fingerprint(facts)}


def _fingerprint(facts: dict[str, Any]) -> str:
    """Memory counts in whole GiB: the kernel's own share of it changes from boot to boot."""
    stable = {**facts, "memory_bytes": round(facts["memory_bytes"] / 2**30)}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def _cpu_model() -> str:
    for line in _read("cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _cache_bytes() -> int | None:
    """All data caches that the usable CPUs reach, one that several share counted once."""
    if not hasattr(os, "sched_getaffinity"):  # Linux only
        return None
    sizes: dict[tuple[str, ...], int] = {}
    for cpu in os.sched_getaffinity(0):
        for cache in (_SYS_CPU / f"cpu{cpu}" / "cache").glob("index*"):
            level, kind, shared, size = (
                (cache / name).read_text().strip()
                for name in ("level", "type", "shared_cpu_list", "size")
            )
            if kind != "Instruction":
                sizes[level, kind, shared] = int(size.removesuffix("K")) * 1024
    return sum(sizes.values()) or None


def _read(name: str) -> str:
    try:
        return (_PROC / name).read_text()
    except OSError:  # not Linux: the counter does not exist here
        return ""


class TelemetrySampler:
    """Reads what disturbs a block. Each sample covers the time since the sample before it."""

    def __init__(self, device: str) -> None:
        self._gpu_index = None if device == "cpu" else gpu.index_of(device)
        self._ticks = _cpu_ticks()

    def sample(self, own_pids: frozenset[int]) -> dict[str, float | int | None]:
        """One sample, to be taken after a block; `own_pids` are not foreign."""
        before, self._ticks = self._ticks, _cpu_ticks()
        counters: dict[str, float | int | None] = {
            "load_1m": os.getloadavg()[0],
            "steal_share": _steal_share(before, self._ticks),
            "cpu_mhz": _mean_mhz(),
            "sm_clock_mhz": None,
            "memory_clock_mhz": None,
            "throttle_reasons": None,
            "temperature_c": None,
            "power_mw": None,
            "foreign_processes": None,
        }
        if self._gpu_index is not None:
            counters.update(gpu.sample(self._gpu_index, own_pids))
        return counters


def _cpu_ticks() -> tuple[int, ...]:
    line = _read("stat").partition("\n")[0]
    return tuple(int(part) for part in line.split()[1:9])


def _steal_share(before: tuple[int, ...], after: tuple[int, ...]) -> float | None:
    """Share of CPU time that the hypervisor gave to others (field 8 of /proc/stat)."""
    if len(after) < 8 or sum(after) == sum(before):
        return None
    return (after[7] - before[7]) / (sum(after) - sum(before))


def _mean_mhz() -> float | None:
    clocks = [
        float(line.split(":", 1)[1])
        for line in _read("cpuinfo").splitlines()
        if line.startswith("cpu MHz")
    ]
    return sum(clocks) / len(clocks) if clocks else None
