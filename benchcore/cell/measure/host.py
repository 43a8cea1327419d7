"""Describes this machine and what disturbs it, from the kernel's files, without a library."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.measure import gpu
from benchcore.cell.measure.gpu_sampler import GpuSampler
from benchcore.device_names import parse_device

_PROC = Path("/proc")
_SHORTEST_S = 0.1
"""Seconds of CPU time; shares of a shorter time are noise."""
_SYS_CPU = Path("/sys/devices/system/cpu")
_CPU_NUMBERS = {
    "cpu family": "family",
    "model": "model",
    "stepping": "stepping",
    "CPU implementer": "implementer",
    "CPU part": "part",
    "CPU variant": "variant",
    "CPU revision": "revision",
}
"""Lines of `cpuinfo` that distinguish generations of CPUs, x86's and Arm's."""


def usable_cpus() -> int:
    """Number of CPUs that this process may use: its affinity, not the machine's size."""
    return len(list_cpus())


def list_cpus() -> list[int]:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def describe_host() -> dict[str, Any]:
    """CPU model, CPUs in use, memory, data caches (None = unknown), and the operating system."""
    return {
        "cpu_model": _cpu_model(),
        "cpus": usable_cpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cache_bytes": _cache_bytes(),
        "system": f"{platform.system()} {platform.release()}",
    }


def describe_device(device: str) -> dict[str, Any]:
    """The device: its identity, and under which driver and clock policy it runs.

    The `fingerprint` of its identity is part of a series' key. Never a host's name.
    """
    host = describe_host()
    if device == "cpu":
        facts = {
            "name": device,
            "kind": "cpu",
            "model": host["cpu_model"],
            "count": host["cpus"],
            "memory_bytes": host["memory_bytes"],
            "driver": None,
            "clock_policy": _cpu_clock_policy(),
        }
    elif absence_reason(device):
        nothing = {"model": "none here", "count": 0, "memory_bytes": None, "driver": None}
        kind = "tpu" if parse_device(device).kind == "tpu" else "gpu"
        facts = {"name": device, "kind": kind, **nothing}
    else:
        of_gpu = gpu.describe(parse_device(device).ordinal)
        fed_by = {"cpu_model": host["cpu_model"], "cpus": host["cpus"]}
        facts = {"name": device, "kind": "gpu", "count": 1, **of_gpu, **fed_by}
    return {**facts, "fingerprint": fingerprint_device(facts)}


def absence_reason(device: str) -> str | None:
    """Why a device of that name can't be measured here; None = it can."""
    wanted = parse_device(device)
    if wanted.kind == "cpu":
        return None
    if wanted.kind == "tpu":
        why = "only CPUs and NVIDIA GPUs can be measured"
    else:
        why = gpu.absence_reason(wanted.ordinal)
    return why and f"wanted device {device!r}, but there is none here ({why}); choose 'cpu'"


def fingerprint_device(facts: Mapping[str, Any]) -> str:
    """16 hex digits of SHA-256 of a device's identity: model and count, and of a GPU its memory and
    MIG profile.

    Neither the name that it was asked by, nor what changes around it: the driver, the clock policy
    and a GPU's host are conditions of a night. Memory counts in whole GiB: the share that a driver
    reserves differs between versions.
    """
    identity = {key: facts[key] for key in ("kind", "model", "count")}
    if facts["kind"] != "cpu":
        identity["memory_gib"] = round((facts["memory_bytes"] or 0) / 2**30)
        identity["mig"] = facts.get("mig")
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _cpu_clock_policy() -> str | None:
    """The frequency governors of the usable CPUs, and whether they may boost; None = the kernel
    doesn't show it, as on most virtual machines."""
    paths = [_SYS_CPU / f"cpu{cpu}/cpufreq/scaling_governor" for cpu in list_cpus()]
    governors = {path.read_text().strip() for path in paths if path.exists()}
    boosts = {
        _SYS_CPU / "cpufreq/boost": {"1": "boost on", "0": "boost off"},
        _SYS_CPU / "intel_pstate/no_turbo": {"0": "boost on", "1": "boost off"},
    }
    read = [words.get(path.read_text().strip()) for path, words in boosts.items() if path.exists()]
    known = [*sorted(governors), *(each for each in read if each)]
    return ", ".join(known) or None


def _cpu_model() -> str:
    """Its name, and the numbers of its kind: a virtual machine may name several generations alike,
    such as "AMD EPYC" for those of families 25 and 26, whose steps differ twofold; Arm's CPUs have
    no name."""
    first = (_list_processors() or [{}])[0]
    name = first.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{word} {first[key]}" for key, word in _CPU_NUMBERS.items() if key in first]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _list_processors() -> list[dict[str, str]]:
    """What the kernel says of each CPU; [] where there is no `cpuinfo`."""
    parts = (map(_squeeze, text.splitlines()) for text in _read("cpuinfo").split("\n\n"))
    found = [dict(line.split(":", 1) for line in lines if ":" in line) for lines in parts]
    return [each for each in found if each]


def _cache_bytes() -> int | None:
    """Bytes of all data caches of the usable CPUs; a shared cache counts once."""
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
    except OSError:  # not Linux: no such counter
        return ""


class TelemetrySampler:
    """Samples the disturbances of a block, from `begin` to `sample`."""

    def __init__(self, device: str) -> None:
        self._gpu_index = None if device == "cpu" else parse_device(device).ordinal

    def begin(self, own_pids: frozenset[int]) -> None:
        """Call right before a block; `own_pids` are not foreign. A GPU is sampled from now on."""
        self._before = _read_cpu_use(own_pids)
        if self._gpu_index is not None:
            self._sampler = GpuSampler(self._gpu_index, own_pids)

    def sample(self, own_pids: frozenset[int]) -> dict[str, Any]:
        """What was counted since `begin`; call right after the block. `missing` is why a GPU's
        counter is null."""
        of_gpu: dict[str, Any] = dict.fromkeys(gpu.COUNTERS)
        if self._gpu_index is not None:
            sampled = self._sampler.stop()
            of_gpu = {**sampled.values, "missing": sampled.missing}
        return {
            "load_1m": os.getloadavg()[0],
            **_shares(self._before, _read_cpu_use(own_pids)),
            "cpu_mhz": _mean_mhz(),
            **of_gpu,
        }


@dataclass(frozen=True, kw_only=True)
class _CpuUse:
    """CPU seconds so far of the CPUs in use: elapsed, idle, stolen, and used by us."""

    capacity_s: float
    idle_s: float
    steal_s: float
    own_s: float


def _read_cpu_use(own_pids: frozenset[int]) -> _CpuUse | None:
    """CPU time until now; None if the kernel doesn't report it (not Linux)."""
    lines = [line.split() for line in _read("stat").splitlines() if line.startswith("cpu")]
    mine = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)} if lines else set()
    ticks = [[int(field) for field in line[1:9]] for line in lines if line[0] in mine]
    if not ticks or min(map(len, ticks)) < 8:
        return None
    per_s = os.sysconf("SC_CLK_TCK")
    return _CpuUse(
        capacity_s=time.monotonic() * len(ticks),
        idle_s=sum(each[3] + each[4] for each in ticks) / per_s,
        steal_s=sum(each[7] for each in ticks) / per_s,
        own_s=sum(_used_ticks(pid) for pid in own_pids | {os.getpid()}) / per_s,
    )


def _used_ticks(pid: int) -> int:
    """CPU time of all threads of a process (fields 14 and 15 of its stat); 0 if it has ended."""
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


def _shares(before: _CpuUse | None, after: _CpuUse | None) -> dict[str, float | None]:
    """Shares of the CPUs that the hypervisor gave to other guests, and that foreign processes used.

    Idle and own time are counted in ticks of 10 ms, so a shorter time has no shares.
    """
    nothing: dict[str, float | None] = {"steal_share": None, "foreign_cpu_share": None}
    if before is None or after is None:
        return nothing
    passed, idle, steal, own = (
        getattr(after, name) - getattr(before, name)
        for name in ("capacity_s", "idle_s", "steal_s", "own_s")
    )
    if passed < _SHORTEST_S:
        return nothing
    shares = {"steal_share": steal, "foreign_cpu_share": passed - idle - steal - own}
    return {name: max(0.0, seconds / passed) for name, seconds in shares.items()}


def _mean_mhz() -> float | None:
    """Mean frequency of the CPUs in use; None if the kernel doesn't measure it.

    Without a frequency driver and x86's two counters for it, `cpuinfo` repeats the value calibrated
    at boot: on a virtual machine it stayed at 2596.132 idle and under load.
    """
    processors = _list_processors()
    mine = {str(cpu) for cpu in os.sched_getaffinity(0)} if processors else set[str]()
    used = [each for each in processors if each.get("processor") in mine and "cpu MHz" in each]
    counted = any("aperfmperf" in each.get("flags", "").split() for each in used)
    if not used or not (counted or (_SYS_CPU / "cpu0" / "cpufreq").exists()):
        return None
    return sum(float(each["cpu MHz"]) for each in used) / len(used)


def _squeeze(line: str) -> str:
    key, _, value = line.partition(":")
    return f"{key.strip()}:{value.strip()}"
