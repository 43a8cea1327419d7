"""Counters of energy: RAPL from a folder of our own, NVML from a module of our own."""

from __future__ import annotations

from ctypes import c_uint
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchcore.cell.measure import energy, gpu

FULL_UJ = 1_000_000


def _zone(powercap: Path, folder: str, name: str, energy_uj: int) -> Path:
    path = powercap / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    (path / "max_energy_range_uj").write_text(f"{FULL_UJ}\n")
    return path / "energy_uj"


def test_packages_add_up_and_their_parts_do_not_count_twice(tmp_path: Path) -> None:
    zones = [
        _zone(tmp_path, "intel-rapl:0", "package-0", 5_000),
        _zone(tmp_path, "intel-rapl:1", "package-1", 7_000),
        _zone(tmp_path, "intel-rapl:0:0", "core", 1_000),
        _zone(tmp_path, "intel-rapl:2", "psys", 99_000),
    ]
    read = energy.open_counter("cpu", tmp_path)
    assert read is not None
    before = read()
    for zone in zones:
        zone.write_text(str(int(zone.read_text()) + 3_000))
    assert read() - before == pytest.approx(6.0)


def test_a_full_counter_starts_again_and_nothing_is_lost(tmp_path: Path) -> None:
    zone = _zone(tmp_path, "intel-rapl:0", "package-0", FULL_UJ - 2_000)
    read = energy.open_counter("cpu", tmp_path)
    assert read is not None
    before = read()
    zone.write_text("1000")
    assert read() - before == pytest.approx(3.0)
    zone.write_text("2000")
    assert read() - before == pytest.approx(4.0)


@pytest.mark.parametrize("content", [None, "", "no number", "-5"])
def test_a_counter_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 1)
    other = _zone(tmp_path, "intel-rapl:1", "package-1", 1)
    other.unlink() if content is None else other.write_text(content)
    assert energy.open_counter("cpu", tmp_path) is None
    assert energy.open_counter("cpu", tmp_path / "nothing here") is None
    assert str(energy.absence_reason("cpu", tmp_path)).startswith("RAPL: ")


def test_power_is_energy_over_the_window() -> None:
    readings = iter([100.0, 350.0])
    spent = energy.measure(lambda: next(readings), lambda: None)
    assert spent.energy_mj == 250.0
    assert energy.Spent(energy_mj=250.0, window_ns=500_000_000).power_mw == 500.0


class _NotSupportedError(Exception):
    value = 3


class _Nvml(SimpleNamespace):
    NVMLError = _NotSupportedError
    NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_SUPPORTED = 4, 3
    NVML_DEVICE_MIG_ENABLE = 1
    energy_mj: int | None = 1234

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceIsMigDeviceHandle(self, handle: int) -> c_uint:
        return c_uint(0)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        raise _NotSupportedError

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.energy_mj is None:
            raise _NotSupportedError("Not Supported")
        return self.energy_mj

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=1, usedGpuMemory=10), SimpleNamespace(pid=2, usedGpuMemory=20)]


def test_a_gpu_counts_its_own_energy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvml = _Nvml()
    monkeypatch.setattr(gpu, "_nvml", lambda: nvml)
    _zone(tmp_path, "intel-rapl:0", "package-0", 1)
    read = energy.open_counter("cuda:0", tmp_path)
    assert read is not None
    assert read() == 1234.0
    nvml.energy_mj = 2234
    assert read() == 2234.0
    nvml.energy_mj = None
    with pytest.raises(gpu.CounterAbsentError, match="NVML: Not Supported"):
        read()
    assert energy.open_counter("cuda:0", tmp_path) is None
    assert energy.absence_reason("cuda:0", tmp_path) == "NVML: Not Supported"


def test_a_process_on_a_gpu_is_weighed_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_nvml", _Nvml)
    assert gpu.process_bytes(0, 2) == 20
    assert gpu.process_bytes(0, 3) is None
