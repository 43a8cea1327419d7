"""Which GPU this is, read from a fake driver with pynvml's own types and errors."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_uint
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from benchcore.cell.measure import energy, gpu, host
from benchcore.cell.result.duel import DeviceRecord
from benchcore.json_types import from_json

GIB = 2**30
_DRIVER = "610.43"
_NEWER = "620.11"


def _error(code: int) -> Exception:
    return pynvml.NVMLError(code)


def _refuse(code: int) -> None:
    raise _error(code)


class Driver:
    """Boards by index; a board's `instances` are those of MIG, None where it can't be divided."""

    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_CLOCK_SM, NVML_CLOCK_MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_ERROR_NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVMLError = pynvml.NVMLError
    cuda = 13020
    version = _DRIVER

    def __init__(self, *boards: dict[str, Any]) -> None:
        self.boards = boards
        self.denied: dict[str, int] = {}
        """NVML's error by name of the function that it refuses."""

    def __getattribute__(self, name: str) -> Any:
        code = object.__getattribute__(self, "__dict__").get("denied", {}).get(name)
        return super().__getattribute__(name) if code is None else lambda *_: _refuse(code)

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
            _refuse(pynvml.NVML_ERROR_NO_PERMISSION)
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


def _board(uuid: str = "GPU-a", **changes: Any) -> dict[str, Any]:
    whole = {"uuid": uuid, "name": "NVIDIA H100 80GB HBM3", "memory": 80 * GIB}
    return {**whole, "instances": [], "mig": 0, **changes}


def _instance(uuid: str, slices: tuple[int, int], memory: int) -> dict[str, Any]:
    name = f"NVIDIA H100 80GB HBM3 MIG {slices[1]}g"
    return {"uuid": uuid, "name": name, "memory": memory, "slices": slices}


THIRD = _instance("MIG-third", (3, 3), 40 * GIB)
SEVENTH = _instance("MIG-seventh", (1, 1), 10 * GIB)


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Driver]:
    def install(*boards: dict[str, Any], visible: str | None = None) -> Driver:
        driver = Driver(*boards)
        monkeypatch.setattr(gpu, "_nvml", lambda: driver)
        monkeypatch.setattr(gpu, "survey", lambda: (True, "a GPU"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return driver

    return install


def test_a_gpu_is_described_with_its_driver_clocks_mig_and_the_cpus_that_feed_it(
    drive: Callable[..., Driver],
) -> None:
    drive(_board())
    device = host.describe_device("cuda:0")
    assert device.pop("fingerprint") == host.fingerprint_device(device)
    assert device == {
        "name": "cuda:0",
        "kind": "gpu",
        "model": "NVIDIA H100 80GB HBM3",
        "count": 1,
        "memory_bytes": 80 * GIB,
        "driver": _DRIVER,
        "clock_policy": "SM at 1000 MHz, at most 1 W",
        "mig": "off",
        "pci_address": "00000000:3B:00.0",
        "cpu_model": host.describe_host()["cpu_model"],
        "cpus": host.usable_cpus(),
    }


def test_one_gpu_by_three_names_is_one_device(drive: Callable[..., Driver]) -> None:
    drive(_board(), _board("GPU-b"))
    named = [host.describe_device(name) for name in ("cuda", "cuda:0", "cuda:1")]
    assert [each["name"] for each in named] == ["cuda", "cuda:0", "cuda:1"]
    assert len({each["fingerprint"] for each in named}) == 1


@pytest.mark.parametrize(
    "change",
    [{"model": "NVIDIA H200"}, {"memory_bytes": 40 * GIB}, {"count": 2}, {"mig": "1c.1g"}],
    ids=["model", "memory", "count", "MIG profile"],
)
def test_another_gpu_count_or_mig_profile_is_another_device(
    drive: Callable[..., Driver], change: dict[str, Any]
) -> None:
    drive(_board())
    device = host.describe_device("cuda")
    assert host.fingerprint_device({**device, **change}) != device["fingerprint"]


def test_a_new_driver_clock_policy_or_host_is_the_same_device(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(_board())
    before = host.describe_device("cuda")
    driver.version = _NEWER
    driver.denied = {"nvmlDeviceGetApplicationsClock": pynvml.NVML_ERROR_NOT_SUPPORTED}
    monkeypatch.setattr(host, "_cpu_model", lambda: "another")
    after = host.describe_device("cuda")
    assert (after["driver"], after["clock_policy"]) == (_NEWER, "at most 1 W")
    assert before["cpu_model"] != after["cpu_model"]
    assert before["fingerprint"] == after["fingerprint"]


@pytest.mark.parametrize(
    ("board", "mig", "memory"),
    [
        (_board(instances=None), None, 80),
        (_board(), "off", 80),
        (_board(mig=1), "on", 80),
        (_board(mig=1, instances=[THIRD, SEVENTH]), "3c.3g", 40),
        (_board(mig=1, instances=[None, SEVENTH]), "1c.1g", 10),
        (_board(mig=1, instances=[_instance("MIG-x", (1, 3), 40 * GIB)]), "1c.3g", 40),
    ],
    ids=["can't", "off", "on, no instance", "the first", "the first there is", "one of three"],
)
def test_on_a_mig_gpu_the_device_is_the_instance_that_cuda_sees(
    drive: Callable[..., Driver], board: dict[str, Any], mig: str | None, memory: int
) -> None:
    drive(board)
    described = gpu.describe(0)
    assert (described["mig"], described["memory_bytes"]) == (mig, memory * GIB)


@pytest.mark.parametrize(
    ("visible", "index", "memory"),
    [
        (None, 1, 40),
        ("1", 0, 40),
        ("1,0", 1, 80),
        ("GPU-b", 0, 40),
        ("GPU-b, GPU-a", 1, 80),
        ("MIG-seventh", 0, 10),
    ],
)
def test_a_gpu_index_counts_visible_devices_as_cuda_does(
    drive: Callable[..., Driver], visible: str | None, index: int, memory: int
) -> None:
    boards = [_board(), _board("GPU-b", memory=40 * GIB), _board(mig=1, instances=[THIRD, SEVENTH])]
    drive(*boards, visible=visible)
    assert gpu.describe(index)["memory_bytes"] == memory * GIB
    assert gpu.absence_reason(index) is None


@pytest.mark.parametrize(
    ("visible", "index"),
    [("1", 1), ("", 0), ("-1", 0), ("7", 0), ("0,-1,1", 1), ("7,0", 1), ("GPU-other", 0)],
)
def test_a_gpu_that_is_not_visible_is_absent(
    drive: Callable[..., Driver], visible: str, index: int
) -> None:
    drive(_board(), _board("GPU-b"), visible=visible)
    reason = gpu.absence_reason(index)
    assert reason is not None
    assert reason.endswith(f"; CUDA_VISIBLE_DEVICES={visible}")
    assert host.absence_reason(f"cuda:{index}") is not None
    assert host.describe_device(f"cuda:{index}")["model"] == "none here"


def test_a_mig_instance_has_the_clocks_of_its_gpu_but_not_its_power(
    drive: Callable[..., Driver],
) -> None:
    drive(_board(mig=1, instances=[{**SEVENTH, "pids": (1, 2)}], pids=(1, 2, 3, 4)))
    sample = gpu.sample(0, frozenset({1}))
    assert (sample.values["sm_clock_mhz"], sample.values["temperature_c"]) == (1000, 1000)
    assert sample.values["power_mw"] is None
    assert sample.missing == {"power_mw": "the board's power includes all its MIG instances"}
    with pytest.raises(gpu.CounterAbsentError, match="Not Supported"):
        gpu.total_energy_mj(0)
    assert sample.values["foreign_processes"] == 1  # those of other instances disturb little
    drive(_board(pids=(1, 2, 3, 4)))
    whole = gpu.sample(0, frozenset({1}))
    assert whole.values["power_mw"] == gpu.total_energy_mj(0) == 1000
    assert (whole.values["foreign_processes"], whole.missing) == (3, {})


_QUERIES = {
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    "nvmlDeviceGetCurrentClocksThrottleReasons": {"throttle_reasons"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetPowerUsage": {"power_mw"},
    "nvmlDeviceGetComputeRunningProcesses": {"foreign_processes"},
    "nvmlDeviceIsMigDeviceHandle": set(gpu.COUNTERS),
}
_REFUSALS = {
    pynvml.NVML_ERROR_NO_PERMISSION: "NVML: Insufficient Permissions",
    pynvml.NVML_ERROR_GPU_IS_LOST: "NVML: GPU is lost",
    pynvml.NVML_ERROR_UNKNOWN: "NVML: Unknown Error",
}


@pytest.mark.parametrize("query", _QUERIES)
@pytest.mark.parametrize("code", _REFUSALS)
def test_whatever_nvml_refuses_is_null_with_its_reason(
    drive: Callable[..., Driver], query: str, code: int
) -> None:
    drive(_board(pids=(1, 2))).denied = {query: code}
    sample = gpu.sample(0, frozenset({1}))
    assert sample.missing == dict.fromkeys(_QUERIES[query], _REFUSALS[code])
    assert {name for name, value in sample.values.items() if value is None} == _QUERIES[query]


def test_counters_that_nvml_refuses_are_unknown(drive: Callable[..., Driver]) -> None:
    names = ("PciInfo", "ComputeRunningProcesses", "TotalEnergyConsumption")
    denied = {f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NO_PERMISSION for name in names}
    drive(_board(pids=(1, 2))).denied = denied
    assert (gpu.pci_address(0), gpu.process_bytes(0, 1)) == (None, None)
    assert energy.open_counter("cuda") is None
    assert energy.absence_reason("cuda") == "NVML: Insufficient Permissions"


_FACTS = {
    "memory_bytes": ("nvmlDeviceGetMemoryInfo",),
    "driver": ("nvmlSystemGetDriverVersion",),
    "clock_policy": ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetPowerManagementLimit"),
    "mig": ("nvmlDeviceGetMigMode",),
    "pci_address": ("nvmlDeviceGetPciInfo",),
}


@pytest.mark.parametrize("fact", _FACTS)
@pytest.mark.parametrize("code", _REFUSALS)
def test_a_fact_that_nvml_refuses_is_null_with_its_reason(
    drive: Callable[..., Driver], fact: str, code: int
) -> None:
    drive(_board()).denied = dict.fromkeys(_FACTS[fact], code)
    device = host.describe_device("cuda")
    assert {name for name, value in device.items() if value is None} == {fact}
    assert device.get("missing") == {fact: _REFUSALS[code]}
    assert from_json(DeviceRecord, device).missing == device["missing"]


@pytest.mark.parametrize("code", _REFUSALS)
@pytest.mark.parametrize("query", ["nvmlDeviceGetName", "nvmlDeviceIsMigDeviceHandle"])
def test_a_gpu_that_nvml_does_not_identify_is_absent_with_the_reason(
    drive: Callable[..., Driver], query: str, code: int
) -> None:
    drive(_board()).denied = {query: code}
    assert gpu.absence_reason(0) == f"a GPU; {_REFUSALS[code]}"


def test_what_nvml_refuses_of_a_list_of_gpus_is_null(drive: Callable[..., Driver]) -> None:
    queries = {"uuid": "UUID", "name": "Name", "memory_bytes": "MemoryInfo"}
    for key, query in queries.items():
        driver = drive(_board())
        driver.denied = {f"nvmlDeviceGet{query}": pynvml.NVML_ERROR_NO_PERMISSION}
        (found,) = gpu.list_gpus()
        assert [name for name, value in found.items() if value is None] == [key]


def test_gpus_of_other_jobs_are_not_counted(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's device constraint: CUDA does not even count them."""
    other, ours = _board("GPU-other", denied=True), _board("GPU-ours", memory=40 * GIB)
    drive(other, ours)
    assert gpu.absence_reason(0) is None
    assert gpu.absence_reason(1) == "a GPU"
    assert gpu.describe(0)["memory_bytes"] == 40 * GIB
    assert [each["uuid"] for each in gpu.list_gpus()] == ["GPU-ours"]


def test_a_survey_lists_the_gpus_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml as real

    for boards, found in (
        ((_board(denied=True), _board()), (True, f"NVIDIA H100 80GB HBM3; driver {_DRIVER}")),
        (
            (_board(denied=True),),
            (False, f"NVML refuses 1 GPUs: no permission; driver {_DRIVER}"),
        ),
        ((), (False, f"no GPU; driver {_DRIVER}")),
    ):
        driver = Driver(*boards)
        for name in (each for each in dir(Driver) if each.startswith("nvml")):
            monkeypatch.setattr(real, name, getattr(driver, name), raising=False)
        assert gpu.survey() == found
    monkeypatch.setattr(
        real, "nvmlSystemGetDriverVersion", lambda: _refuse(pynvml.NVML_ERROR_UNKNOWN)
    )
    assert gpu.survey() == (False, "no GPU; driver unknown (NVML: Unknown Error)")


def test_the_driver_names_the_cuda_it_supports(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(_board())
    assert gpu.driver_cuda() == 13
    driver.cuda = 12090
    assert gpu.driver_cuda() == 12
    driver.denied = {"nvmlSystemGetCudaDriverVersion": pynvml.NVML_ERROR_UNKNOWN}
    assert gpu.driver_cuda() is None
    monkeypatch.setattr(gpu, "survey", lambda: (False, "no NVIDIA driver"))
    assert gpu.driver_cuda() is None
