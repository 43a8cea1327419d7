"""The door to NVML: which GPU this is, and its clocks, heat and company. Not yet run on a GPU."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def survey() -> tuple[bool, str]:
    """Whether there is a GPU that can be used, and in words what there is."""
    try:
        import pynvml
    except ImportError:
        return False, "nvidia-ml-py, which would see one, is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        no_library = isinstance(error, pynvml.NVMLError_LibraryNotFound)  # type: ignore[attr-defined]
        return False, "no NVIDIA driver" if no_library else f"NVML: {error}"
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        indices = range(pynvml.nvmlDeviceGetCount())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
    except pynvml.NVMLError as error:
        return False, f"NVML: {error}"
    finally:
        pynvml.nvmlShutdown()
    return bool(names), f"{', '.join(names) or 'no GPU'}; driver {driver}"


def why_absent(index: int) -> str | None:
    """Why there is no GPU of that index, in words; None = there is one."""
    usable, found = survey()
    if usable and index < _nvml().nvmlDeviceGetCount():
        return None
    return found


def describe(index: int) -> dict[str, Any]:
    """Model, memory in bytes and driver version of a GPU."""
    nvml = _nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "model": nvml.nvmlDeviceGetName(handle),
        "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "driver": nvml.nvmlSystemGetDriverVersion(),
    }


def list_gpus() -> list[dict[str, Any]]:
    """UUID, name and memory of every GPU that this process sees."""
    nvml = _nvml()
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    return [
        {
            "uuid": nvml.nvmlDeviceGetUUID(handle),
            "name": nvml.nvmlDeviceGetName(handle),
            "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(handle).total,
        }
        for handle in handles
    ]


def sample(index: int, own_pids: frozenset[int]) -> dict[str, float | int | None]:
    """Clocks, throttle reasons, temperature, power and foreign processes; None where unknown."""
    nvml = _nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Any, *arguments: Any) -> int | None:
        try:
            return question(handle, *arguments)
        except nvml.NVMLError_NotSupported:
            return None

    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
    return {
        "sm_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        "throttle_reasons": ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
        "temperature_c": ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": ask(nvml.nvmlDeviceGetPowerUsage),
        "foreign_processes": None
        if processes is None
        else count_foreign([process.pid for process in processes], own_pids),  # type: ignore[attr-defined]
    }


def total_energy_mj(index: int) -> int | None:
    """Millijoules since the driver was loaded; None before Volta."""
    nvml = _nvml()
    try:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError_NotSupported:
        return None


def process_bytes(index: int, pid: int) -> int | None:
    """Device memory of a process, context and libraries included; None where it isn't told.

    In a container the driver may know the process by another number.
    """
    nvml = _nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError_NotSupported:
        return None
    used = [process.usedGpuMemory for process in processes if process.pid == pid]
    return used[0] if used else None


def count_foreign(pids: list[int], own_pids: frozenset[int]) -> int:
    """Processes on the GPU that are not ours.

    In a container NVML tells the host's process ids, so that none of ours is known: then whatever
    is more than ours is foreign.
    """
    known = own_pids & set(pids)
    return len(pids) - len(known) if known else max(0, len(pids) - len(own_pids))
