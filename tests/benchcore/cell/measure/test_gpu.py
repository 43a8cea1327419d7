"""Which GPU this is, read from a fake driver with pynvml's own types and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from nvidia_driver import DRIVER_VERSION, GIB, FakeDriver, make_board, make_instance, refuse

from benchcore.cell.measure import energy, gpu, host
from benchcore.cell.result.duel import DeviceRecord
from benchcore.json_types import from_json

_NEWER = "620.11"


THIRD = make_instance("MIG-third", (3, 3), 40 * GIB)
SEVENTH = make_instance("MIG-seventh", (1, 1), 10 * GIB)


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeDriver]:
    def install(*boards: dict[str, Any], visible: str | None = None) -> FakeDriver:
        driver = FakeDriver(*boards)
        monkeypatch.setattr(gpu, "_nvml", lambda: driver)
        monkeypatch.setattr(gpu, "survey", lambda: (True, "a GPU"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return driver

    return install


def test_a_gpu_is_described_with_its_driver_clocks_mig_and_the_cpus_that_feed_it(
    drive: Callable[..., FakeDriver],
) -> None:
    drive(make_board())
    device = host.describe_device("cuda:0")
    assert device.pop("fingerprint") == host.fingerprint_device(device)
    assert device == {
        "name": "cuda:0",
        "kind": "gpu",
        "model": "NVIDIA H100 80GB HBM3",
        "count": 1,
        "memory_bytes": 80 * GIB,
        "driver": DRIVER_VERSION,
        "clock_policy": "SM at 1000 MHz, at most 1 W",
        "mig": "off",
        "pci_address": "00000000:3B:00.0",
        "cpu_model": host.describe_host()["cpu_model"],
        "cpus": host.usable_cpus(),
    }


def test_one_gpu_by_three_names_is_one_device(drive: Callable[..., FakeDriver]) -> None:
    drive(make_board(), make_board("GPU-b"))
    named = [host.describe_device(name) for name in ("cuda", "cuda:0", "cuda:1")]
    assert [each["name"] for each in named] == ["cuda", "cuda:0", "cuda:1"]
    assert len({each["fingerprint"] for each in named}) == 1


@pytest.mark.parametrize(
    "change",
    [{"model": "NVIDIA H200"}, {"memory_bytes": 40 * GIB}, {"count": 2}, {"mig": "1c.1g"}],
    ids=["model", "memory", "count", "MIG profile"],
)
def test_another_gpu_count_or_mig_profile_is_another_device(
    drive: Callable[..., FakeDriver], change: dict[str, Any]
) -> None:
    drive(make_board())
    device = host.describe_device("cuda")
    assert host.fingerprint_device({**device, **change}) != device["fingerprint"]


def test_a_new_driver_clock_policy_or_host_is_the_same_device(
    drive: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(make_board())
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
        (make_board(instances=None), None, 80),
        (make_board(), "off", 80),
        (make_board(mig=1), "on", 80),
        (make_board(mig=1, instances=[THIRD, SEVENTH]), "3c.3g", 40),
        (make_board(mig=1, instances=[None, SEVENTH]), "1c.1g", 10),
        (make_board(mig=1, instances=[make_instance("MIG-x", (1, 3), 40 * GIB)]), "1c.3g", 40),
    ],
    ids=["can't", "off", "on, no instance", "the first", "the first there is", "one of three"],
)
def test_on_a_mig_gpu_the_device_is_the_instance_that_cuda_sees(
    drive: Callable[..., FakeDriver], board: dict[str, Any], mig: str | None, memory: int
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
    drive: Callable[..., FakeDriver], visible: str | None, index: int, memory: int
) -> None:
    boards = [
        make_board(),
        make_board("GPU-b", memory=40 * GIB),
        make_board(mig=1, instances=[THIRD, SEVENTH]),
    ]
    drive(*boards, visible=visible)
    assert gpu.describe(index)["memory_bytes"] == memory * GIB
    assert gpu.absence_reason(index) is None


@pytest.mark.parametrize(
    ("visible", "index"),
    [("1", 1), ("", 0), ("-1", 0), ("7", 0), ("0,-1,1", 1), ("7,0", 1), ("GPU-other", 0)],
)
def test_a_gpu_that_is_not_visible_is_absent(
    drive: Callable[..., FakeDriver], visible: str, index: int
) -> None:
    drive(make_board(), make_board("GPU-b"), visible=visible)
    reason = gpu.absence_reason(index)
    assert reason is not None
    assert reason.endswith(f"; CUDA_VISIBLE_DEVICES={visible}")
    assert host.absence_reason(f"cuda:{index}") is not None
    assert host.describe_device(f"cuda:{index}")["model"] == "none here"


def test_a_mig_instance_has_the_clocks_of_its_gpu_but_not_its_power(
    drive: Callable[..., FakeDriver],
) -> None:
    drive(make_board(mig=1, instances=[{**SEVENTH, "pids": (1, 2)}], pids=(1, 2, 3, 4)))
    sample = gpu.sample(0, frozenset({1}))
    assert (sample.values["sm_clock_mhz"], sample.values["temperature_c"]) == (1000, 1000)
    assert sample.values["power_mw"] is None
    assert sample.missing == {"power_mw": "the board's power includes all its MIG instances"}
    with pytest.raises(gpu.CounterAbsentError, match="Not Supported"):
        gpu.total_energy_mj(0)
    assert sample.values["foreign_processes"] == 1  # those of other instances disturb little
    drive(make_board(pids=(1, 2, 3, 4)))
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
    drive: Callable[..., FakeDriver], query: str, code: int
) -> None:
    drive(make_board(pids=(1, 2))).denied = {query: code}
    sample = gpu.sample(0, frozenset({1}))
    assert sample.missing == dict.fromkeys(_QUERIES[query], _REFUSALS[code])
    assert {name for name, value in sample.values.items() if value is None} == _QUERIES[query]


def test_counters_that_nvml_refuses_are_unknown(drive: Callable[..., FakeDriver]) -> None:
    names = ("PciInfo", "ComputeRunningProcesses", "TotalEnergyConsumption")
    denied = {f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NO_PERMISSION for name in names}
    drive(make_board(pids=(1, 2))).denied = denied
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
    drive: Callable[..., FakeDriver], fact: str, code: int
) -> None:
    drive(make_board()).denied = dict.fromkeys(_FACTS[fact], code)
    device = host.describe_device("cuda")
    assert {name for name, value in device.items() if value is None} == {fact}
    assert device.get("missing") == {fact: _REFUSALS[code]}
    assert from_json(DeviceRecord, device).missing == device["missing"]


@pytest.mark.parametrize("code", _REFUSALS)
@pytest.mark.parametrize("query", ["nvmlDeviceGetName", "nvmlDeviceIsMigDeviceHandle"])
def test_a_gpu_that_nvml_does_not_identify_is_absent_with_the_reason(
    drive: Callable[..., FakeDriver], query: str, code: int
) -> None:
    drive(make_board()).denied = {query: code}
    assert gpu.absence_reason(0) == f"a GPU; {_REFUSALS[code]}"


def test_what_nvml_refuses_of_a_list_of_gpus_is_null(drive: Callable[..., FakeDriver]) -> None:
    queries = {"uuid": "UUID", "name": "Name", "memory_bytes": "MemoryInfo"}
    for key, query in queries.items():
        driver = drive(make_board())
        driver.denied = {f"nvmlDeviceGet{query}": pynvml.NVML_ERROR_NO_PERMISSION}
        (found,) = gpu.list_gpus()
        assert [name for name, value in found.items() if value is None] == [key]


def test_gpus_of_other_jobs_are_not_counted(
    drive: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's device constraint: CUDA does not even count them."""
    other, ours = make_board("GPU-other", denied=True), make_board("GPU-ours", memory=40 * GIB)
    drive(other, ours)
    assert gpu.absence_reason(0) is None
    assert gpu.absence_reason(1) == "a GPU"
    assert gpu.describe(0)["memory_bytes"] == 40 * GIB
    assert [each["uuid"] for each in gpu.list_gpus()] == ["GPU-ours"]


def test_a_survey_lists_the_gpus_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml as real

    for boards, found in (
        (
            (make_board(denied=True), make_board()),
            (True, f"NVIDIA H100 80GB HBM3; driver {DRIVER_VERSION}"),
        ),
        (
            (make_board(denied=True),),
            (False, f"NVML refuses 1 GPUs: no permission; driver {DRIVER_VERSION}"),
        ),
        ((), (False, f"no GPU; driver {DRIVER_VERSION}")),
    ):
        driver = FakeDriver(*boards)
        for name in (each for each in dir(FakeDriver) if each.startswith("nvml")):
            monkeypatch.setattr(real, name, getattr(driver, name), raising=False)
        assert gpu.survey() == found
    monkeypatch.setattr(
        real, "nvmlSystemGetDriverVersion", lambda: refuse(pynvml.NVML_ERROR_UNKNOWN)
    )
    assert gpu.survey() == (False, "no GPU; driver unknown (NVML: Unknown Error)")


def test_the_driver_names_the_cuda_it_supports(
    drive: Callable[..., FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive(make_board())
    assert gpu.driver_cuda() == 13
    driver.cuda = 12090
    assert gpu.driver_cuda() == 12
    driver.denied = {"nvmlSystemGetCudaDriverVersion": pynvml.NVML_ERROR_UNKNOWN}
    assert gpu.driver_cuda() is None
    monkeypatch.setattr(gpu, "survey", lambda: (False, "no NVIDIA driver"))
    assert gpu.driver_cuda() is None
