"""A fake of NVIDIA's driver, with pynvml's own types and errors, and GPUs for it."""

from __future__ import annotations

from ctypes import c_uint
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30
DRIVER_VERSION = "610.43"


def _error(code: int) -> Exception:
    return pynvml.NVMLError(code)


def refuse(code: int) -> None:
    """Raise NVML's error of this number."""
    raise _error(code)


class FakeDriver:
    """Boards by index; a board's `instances` are those of MIG, None where it can't be divided."""

    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_CLOCK_SM, NVML_CLOCK_MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_ERROR_NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVMLError = pynvml.NVMLError
    cuda = 13020
    version = DRIVER_VERSION

    def __init__(self, *boards: dict[str, Any]) -> None:
        self.boards = boards
        self.denied: dict[str, int] = {}
        """NVML's error by name of the function that it refuses."""

    def __getattribute__(self, name: str) -> Any:
        code = object.__getattribute__(self, "__dict__").get("denied", {}).get(name)
        return super().__getattribute__(name) if code is None else lambda *_: refuse(code)

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.cuda

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> str:
        return handle["uuid"]

    def nvmlDeviceGetPciInfo(self, handle: dict[str, Any]) -> Any:
        return SimpleNamespace(busId="00000000:3B:00.0")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.boards[index].get("denied"):
            refuse(pynvml.NVML_ERROR_NO_PERMISSION)
        return self.boards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        parts = [part for board in self.boards for part in board.get("instances") or () if part]
        for each in (*self.boards, *parts):
            if each["uuid"] == uuid:
                return each
        raise _error(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceIsMigDeviceHandle(self, handle: dict[str, Any]) -> c_uint:
        return c_uint("slices" in handle)

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> list[int]:
        if handle.get("instances") is None:
            raise _error(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [handle.get("mig", 1), handle.get("mig", 1)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> Any:
        instances = [*handle["instances"], *[None] * 7]
        if instances[index] is None:
            raise _error(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: dict[str, Any]) -> Any:
        return next(board for board in self.boards if handle in (board["instances"] or ()))

    def nvmlDeviceGetAttributes(self, handle: dict[str, Any]) -> Any:
        compute, whole = handle["slices"]
        return pynvml.c_nvmlDeviceAttributes(
            computeInstanceSliceCount=compute, gpuInstanceSliceCount=whole
        )

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str:
        return handle["name"]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:
        return pynvml.c_nvmlMemory_t(total=handle["memory"])

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.version

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=1) for pid in handle.get("pids", ())]

    def _of_a_board(self, handle: dict[str, Any], *_: int) -> int:
        if "slices" in handle:
            raise _error(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1000

    nvmlDeviceGetClockInfo = nvmlDeviceGetApplicationsClock = _of_a_board
    nvmlDeviceGetPowerManagementLimit = _of_a_board
    nvmlDeviceGetCurrentClocksThrottleReasons = _of_a_board
    nvmlDeviceGetTemperature = _of_a_board
    nvmlDeviceGetPowerUsage = _of_a_board
    nvmlDeviceGetTotalEnergyConsumption = _of_a_board


def make_board(uuid: str = "GPU-a", **changes: Any) -> dict[str, Any]:
    """An H100 that MIG could divide, and does not."""
    whole = {"uuid": uuid, "name": "NVIDIA H100 80GB HBM3", "memory": 80 * GIB}
    return {**whole, "instances": [], "mig": 0, **changes}


def make_instance(uuid: str, slices: tuple[int, int], memory: int) -> dict[str, Any]:
    """An instance of MIG on an H100; `slices` are those of compute and of the whole."""
    name = f"NVIDIA H100 80GB HBM3 MIG {slices[1]}g"
    return {"uuid": uuid, "name": name, "memory": memory, "slices": slices}
