"""Which machine this is: what a series is tied to, and what it is not."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from benchcore.cell.measure import host


def test_a_device_is_its_model_count_and_memory_and_never_a_host_name() -> None:
    device = host.describe_device("cpu")
    assert device["kind"] == "cpu"
    assert device["count"] == host.usable_cpus() >= 1
    assert device["memory_bytes"] > 2**20
    assert device["driver"] is None
    assert platform.node() not in {str(value) for value in device.values()}
    assert host.describe_device("cpu")["fingerprint"] == device["fingerprint"]


_CPU = {"name": "cpu", "kind": "cpu", "model": "x", "count": 2, "memory_bytes": 2**35}


@pytest.mark.parametrize("change", [{"model": "another"}, {"count": 99}, {"kind": "gpu"}])
def test_another_device_has_another_fingerprint(change: dict[str, object]) -> None:
    assert host.fingerprint_device({**_CPU, **change}) != host.fingerprint_device(_CPU)


@pytest.mark.parametrize("change", [{"memory_bytes": 2**34}, {"clock_policy": "performance"}])
def test_a_cpu_is_its_model_and_cores(change: dict[str, object]) -> None:
    assert host.fingerprint_device({**_CPU, **change}) == host.fingerprint_device(_CPU)


_GENERATIONS = {
    "Zen 4": "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
    "model name\t: AMD EPYC\nstepping\t: 1\n",
    "Zen 5": "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n"
    "model name\t: AMD EPYC\nstepping\t: 1\n",
    "Neoverse N1": "CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n",
    "Neoverse V2": "CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd4f\n",
}


def test_generations_of_cpus_with_one_name_are_different_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nights on "AMD EPYC" differed twofold: they ran on CPUs of families 25 and 26."""
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = {}
    for name, first in _GENERATIONS.items():
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{first}\nprocessor\t: 1\n{first}\n")
        found[name] = host.describe_device("cpu")
    assert len({each["fingerprint"] for each in found.values()}) == len(_GENERATIONS)
    assert found["Zen 5"]["model"] == "AMD EPYC (family 26, model 2, stepping 1)"
    expected = "aarch64 (implementer 0x41, part 0xd4f, variant 0x3)"
    assert found["Neoverse V2"]["model"] == expected


def test_a_system_without_cpuinfo_has_a_model_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert host.describe_device("cpu")["model"] == "arm"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")
def test_a_clock_policy_is_the_governor_and_the_boost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_SYS_CPU", tmp_path)
    assert host.describe_device("cpu")["clock_policy"] is None
    folder = tmp_path / f"cpu{min(os.sched_getaffinity(0))}" / "cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_governor").write_text("powersave\n")
    assert host.describe_device("cpu")["clock_policy"] == "powersave"
    (tmp_path / "intel_pstate").mkdir()
    (tmp_path / "intel_pstate" / "no_turbo").write_text("1\n")
    assert host.describe_device("cpu")["clock_policy"] == "powersave, boost off"


def test_readings_without_a_counter_on_a_cpu_are_null() -> None:
    sampler = host.TelemetrySampler("cpu")
    sampler.begin(frozenset())
    counters = sampler.sample(frozenset())
    assert counters["load_1m"] is not None
    for gpu_only in ("sm_clock_mhz", "throttle_reasons", "power_mw", "foreign_processes"):
        assert counters[gpu_only] is None


def _write_cpuinfo(folder: Path, flags: str) -> None:
    """Two CPUs; only the first is ours."""
    mine = min(os.sched_getaffinity(0))
    cpus = ((mine, 3100.5), (mine + 1000, 800.0))
    (folder / "cpuinfo").write_text(
        "\n".join(
            f"processor\t: {cpu}\ncpu MHz\t\t: {mhz}\nflags\t\t: fpu {flags}\n" for cpu, mhz in cpus
        )
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("flags", "driver", "mhz"),
    [("sse2", False, None), ("aperfmperf sse2", False, 3100.5), ("sse2", True, 3100.5)],
    ids=["a virtual machine", "counted", "a frequency driver"],
)
def test_a_frequency_is_reported_only_if_the_kernel_measures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, driver: bool, mhz: float | None
) -> None:
    """Else `cpuinfo` holds what was calibrated at boot, which looks like a measurement."""
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(host, "_SYS_CPU", tmp_path)
    _write_cpuinfo(tmp_path, flags)
    if driver:
        (tmp_path / "cpu0" / "cpufreq").mkdir(parents=True)
    assert host._mean_mhz() == mhz


@pytest.mark.parametrize("device", ["cuda:x", "gpu:0", ""])
def test_a_device_without_a_name_we_know_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="devices are 'cpu', 'cuda', 'cuda:N'"):
        host.describe_device(device)
