"""NVML: identity of the GPU, its clocks, temperature, energy and processes. Not run on a GPU."""

from __future__ import annotations

import functools
import os
from typing import Any


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
        driver = pynvml.nvmlSystemGetDriverVersion()
        indices = range(pynvml.nvmlDeviceGetCount())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
    except pynvml.NVMLError as error:
        return False, f"NVML: {error}"
    finally:
        pynvml.nvmlShutdown()
    return bool(names), f"{', '.join(names) or 'no GPU'}; driver {driver}"


def absence_reason(index: int) -> str | None:
    """Why there is no GPU with that index; None = there is one."""
    usable, found = survey()
    visible = _visible()
    if usable and index < (_nvml().nvmlDeviceGetCount() if visible is None else len(visible)):
        return None
    return found if visible is None else f"{found}; CUDA_VISIBLE_DEVICES={','.join(visible)}"


def _visible() -> list[str] | None:
    """The devices in CUDA_VISIBLE_DEVICES, by index or UUID; None = all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [each.strip() for each in named.split(",") if each.strip()]


def _find(index: int) -> Any:
    """NVML's handle of the GPU that CUDA calls `index`; NVML's own order may differ.

    CUDA uses only the first instance of a board in MIG mode, unless another one is named.
    """
    nvml, visible = _nvml(), _visible()
    named = str(index) if visible is None else visible[index]
    if not named.isdigit():
        handle = nvml.nvmlDeviceGetHandleByUUID(named)
    else:
        handle = nvml.nvmlDeviceGetHandleByIndex(int(named))
    if _is_instance(handle) or _mig_mode(handle) != nvml.NVML_DEVICE_MIG_ENABLE:
        return handle
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError_NotFound:
            continue
    return handle


def _is_instance(handle: Any) -> bool:
    """Whether it is a MIG instance, a part of a board."""
    return bool(_nvml().nvmlDeviceIsMigDeviceHandle(handle).value)


def _mig_mode(board: Any) -> int | None:
    """None = the board doesn't support MIG."""
    nvml = _nvml()
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(board)
    except nvml.NVMLError_NotSupported:
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
    """Model, memory in bytes, driver version and MIG instance of a GPU, by CUDA's index."""
    nvml, handle = _nvml(), _find(index)
    return {
        "model": nvml.nvmlDeviceGetName(handle),
        "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "mig": _describe_mig(handle),
    }


def list_gpus() -> list[dict[str, Any]]:
    """UUID, name and memory of every GPU visible to this process."""
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
    """Clocks, throttle reasons, temperature, power and foreign processes; None where unknown.

    A MIG instance reports its board's clocks and temperature; the board's power covers all
    instances.
    """
    nvml, handle = _nvml(), _find(index)
    part = _is_instance(handle)
    board = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if part else handle

    def read(query: Any, *arguments: Any, of: Any = board) -> Any:
        try:
            return query(of, *arguments)
        except nvml.NVMLError_NotSupported:
            return None

    processes = read(nvml.nvmlDeviceGetComputeRunningProcesses, of=handle)
    return {
        "sm_clock_mhz": read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        "throttle_reasons": read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
        "temperature_c": read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": None if part else read(nvml.nvmlDeviceGetPowerUsage),
        "foreign_processes": None
        if processes is None
        else count_foreign([process.pid for process in processes], own_pids),
    }


def pci_address(index: int) -> str | None:
    """The board's PCI address in NVML's notation (`00000000:3B:00.0`); None = unknown."""
    nvml, handle = _nvml(), _find(index)
    if _is_instance(handle):
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    try:
        return nvml.nvmlDeviceGetPciInfo(handle).busId
    except nvml.NVMLError_NotSupported:
        return None


def total_energy_mj(index: int) -> int | None:
    """Millijoules since the driver was loaded; None before Volta and for MIG instances."""
    nvml, handle = _nvml(), _find(index)
    try:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError_NotSupported:
        return None


def process_bytes(index: int, pid: int) -> int | None:
    """Device memory of a process, context and libraries included; None = unknown.

    In a container the driver may know the process by another id.
    """
    nvml, handle = _nvml(), _find(index)
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError_NotSupported:
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
