"""NVML: identity of the GPU, its clocks, temperature, energy and processes. Not run on a GPU."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

COUNTERS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "throttle_reasons",
    "temperature_c",
    "power_mw",
    "foreign_processes",
)


class CounterAbsentError(Exception):
    """The device has no such counter, or does not let us read it; the message is the reason."""


@dataclass(frozen=True)
class Sample:
    """The `COUNTERS` of one moment, None where unknown, and why, by name."""

    values: dict[str, float | int | None]
    missing: dict[str, str]


@functools.cache
def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def survey() -> tuple[bool, str]:
    """Whether there is a usable GPU, and a description of it or of the reason."""
    try:
        import pynvml
    except ImportError:
        return False, "the package nvidia-ml-py, which detects GPUs, is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        no_library = isinstance(error, pynvml.NVMLError_LibraryNotFound)  # type: ignore[attr-defined]
        return False, "no NVIDIA driver" if no_library else f"NVML: {error}"
    try:
        handles, denied = _list_boards(pynvml)
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        driver = _read_driver(pynvml)
    except pynvml.NVMLError as error:
        return False, f"NVML: {error}"
    finally:
        pynvml.nvmlShutdown()
    if not names and denied:
        return False, f"NVML refuses {denied} GPUs: no permission; driver {driver}"
    return bool(names), f"{', '.join(names) or 'no GPU'}; driver {driver}"


def _read_driver(nvml: Any) -> str:
    try:
        return nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError as error:
        return f"unknown (NVML: {error})"


def driver_cuda() -> int | None:
    """The major version of CUDA that the driver supports, such as 12 or 13; None = unknown."""
    usable, _ = survey()
    if not usable:
        return None
    nvml = _nvml()
    try:
        return int(nvml.nvmlSystemGetCudaDriverVersion()) // 1000
    except nvml.NVMLError:
        return None


def _list_boards(nvml: Any) -> tuple[list[Any], int]:
    """The boards that this process may use, in the order of their PCI addresses, and how many it
    may not: NVML counts those of other Slurm jobs too, and CUDA does not."""
    handles, denied = [], 0
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                raise
            denied += 1
    return handles, denied


def absence_reason(index: int) -> str | None:
    """Why there is no GPU with that index, or none whose model is known; None = there is one."""
    usable, found = survey()
    if usable:
        nvml = _nvml()
        try:
            nvml.nvmlDeviceGetName(_find(index))
            return None
        except IndexError:
            pass
        except nvml.NVMLError as error:
            found = f"{found}; NVML: {error}"
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if named is None else f"{found}; CUDA_VISIBLE_DEVICES={named}"


def _list_visible(boards: int) -> list[str]:
    """The devices that CUDA shows, by index or UUID: those in CUDA_VISIBLE_DEVICES before the first
    one that can't exist, such as -1."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(boards)]
    wanted = (each.strip() for each in named.split(","))
    return list(itertools.takewhile(lambda each: _may_exist(each, boards), wanted))


def _may_exist(named: str, boards: int) -> bool:
    return int(named) < boards if named.isdigit() else named.startswith(("GPU-", "MIG-"))


def _find(index: int) -> Any:
    """NVML's handle of the GPU that CUDA calls `index`; NVML's own order may differ. Raises
    IndexError where CUDA has none.

    CUDA uses only the first instance of a board in MIG mode, unless another one is named.
    """
    nvml = _nvml()
    boards, _ = _list_boards(nvml)
    named = _list_visible(len(boards))[index]
    handle = boards[int(named)] if named.isdigit() else nvml.nvmlDeviceGetHandleByUUID(named)
    if _is_instance(handle) or not _is_divided(handle):
        return handle
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue
    return handle


def _is_instance(handle: Any) -> bool:
    """Whether it is a MIG instance, a part of a board."""
    return bool(_nvml().nvmlDeviceIsMigDeviceHandle(handle).value)


def _is_divided(board: Any) -> bool:
    nvml = _nvml()
    try:
        return _mig_mode(board) == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:
        return False


def _mig_mode(board: Any) -> int | None:
    """NVML's mode of MIG, 0 = off; None = the board doesn't support it."""
    nvml = _nvml()
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(board)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return None
    return current


def _describe_mig(handle: Any) -> str | None:
    """`off`, the instance's compute and GPU slices (`1c.3g`), or `on` without an instance; None for
    a board that doesn't support MIG."""
    nvml = _nvml()
    if _is_instance(handle):
        has = nvml.nvmlDeviceGetAttributes(handle)
        return f"{has.computeInstanceSliceCount}c.{has.gpuInstanceSliceCount}g"
    mode = _mig_mode(handle)
    return None if mode is None else "on" if mode == nvml.NVML_DEVICE_MIG_ENABLE else "off"


def describe(index: int) -> dict[str, Any]:
    """Model, memory in bytes, driver version, clock policy, MIG instance and PCI address of a GPU,
    by CUDA's index; None for what NVML refuses, and why, in `missing`."""
    nvml, handle = _nvml(), _find(index)
    queries: dict[str, Callable[[], Any]] = {
        "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "driver": nvml.nvmlSystemGetDriverVersion,
        "clock_policy": lambda: _describe_clock_policy(handle),
        "mig": lambda: _describe_mig(handle),
        "pci_address": lambda: _read_pci_address(handle),
    }
    values, missing = _query(queries)
    why = {"missing": missing} if missing else {}
    return {"model": nvml.nvmlDeviceGetName(handle), **values, **why}


def _query(queries: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """What NVML answers, None where it refuses, and why, by name."""
    values, missing = dict[str, Any].fromkeys(queries), {}
    for name, query in queries.items():
        try:
            values[name] = query()
        except _nvml().NVMLError as error:
            missing[name] = f"NVML: {error}"
    return values, missing


def _describe_clock_policy(handle: Any) -> str:
    """Application clocks and power limit of the board, or one of them. Raises NVMLError where it
    refuses both."""
    nvml = _nvml()
    if _is_instance(handle):
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    known: list[str] = []
    with suppress(nvml.NVMLError):
        clock = nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM)
        known.append(f"SM at {clock} MHz")
    try:
        limit = nvml.nvmlDeviceGetPowerManagementLimit(handle)
        known.append(f"at most {limit / 1000:.0f} W")
    except nvml.NVMLError:
        if not known:
            raise
    return ", ".join(known)


def list_gpus() -> list[dict[str, Any]]:
    """UUID, name and memory of every GPU visible to this process; None for what NVML refuses."""
    nvml = _nvml()
    handles, _ = _list_boards(nvml)
    asked = {
        "uuid": nvml.nvmlDeviceGetUUID,
        "name": nvml.nvmlDeviceGetName,
        "memory_bytes": lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).total,
    }
    return [
        _query({name: functools.partial(ask, handle) for name, ask in asked.items()})[0]
        for handle in handles
    ]


def sample(index: int, own_pids: frozenset[int]) -> Sample:
    """Clocks, throttle reasons, temperature, power and foreign processes now.

    A MIG instance has its board's clocks and temperature; the board's power is of all instances.
    """
    nvml = _nvml()
    try:
        handle = _find(index)
        part = _is_instance(handle)
        board = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if part else handle
    except nvml.NVMLError as error:
        return Sample(dict.fromkeys(COUNTERS), dict.fromkeys(COUNTERS, f"NVML: {error}"))
    queries: dict[str, Callable[[], Any]] = {
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_MEM),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(board, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(board),
        "foreign_processes": lambda: count_foreign(_list_pids(handle), own_pids),
    }
    if part:
        del queries["power_mw"]
    known, missing = _query(queries)
    if part:
        missing["power_mw"] = "the board's power includes all its MIG instances"
    return Sample(dict.fromkeys(COUNTERS) | known, missing)


def _list_pids(handle: Any) -> list[int]:
    return [process.pid for process in _nvml().nvmlDeviceGetComputeRunningProcesses(handle)]


def pci_address(index: int) -> str | None:
    """The board's PCI address as NVML writes it (`00000000:3B:00.0`); None = unknown."""
    try:
        return _read_pci_address(_find(index))
    except _nvml().NVMLError:
        return None


def _read_pci_address(handle: Any) -> str:
    nvml = _nvml()
    if _is_instance(handle):
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return nvml.nvmlDeviceGetPciInfo(handle).busId


def total_energy_mj(index: int) -> int:
    """Millijoules since the driver was loaded.

    Raises CounterAbsentError: before Volta, of a MIG instance, and where NVML refuses.
    """
    nvml = _nvml()
    try:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(_find(index))
    except nvml.NVMLError as error:
        raise CounterAbsentError(f"NVML: {error}") from error


def process_bytes(index: int, pid: int) -> int | None:
    """Device memory of a process, context and libraries included; None = unknown.

    In a container the driver may know the process by another id.
    """
    nvml = _nvml()
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(_find(index))
    except nvml.NVMLError:
        return None
    used = [process.usedGpuMemory for process in processes if process.pid == pid]
    return used[0] if used else None


def count_foreign(pids: list[int], own_pids: frozenset[int]) -> int:
    """Processes on the GPU that are not ours.

    In a container NVML reports the host's process ids, so ours can't be recognised. Then every
    process beyond the number of ours is foreign.
    """
    known = own_pids & set(pids)
    return len(pids) - len(known) if known else max(0, len(pids) - len(own_pids))
