"""Energy counters, not power samples: NVML's on a GPU (not run on one), RAPL's on a CPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchcore.cell.measure import gpu
from benchcore.device_names import parse_device

POWERCAP = Path("/sys/class/powercap")
# A package includes its cores and often its memory; those subzones, and `psys`, would count twice.
_ZONE = re.compile(r"intel-rapl:\d+")

ReadMillijoules = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The increase of a counter over a window."""

    energy_mj: float
    window_ns: int

    @property
    def power_mw(self) -> float:
        """Mean power; a millijoule per second is a milliwatt."""
        return self.energy_mj / (self.window_ns / 1e9)


def open_counter(device: str, powercap: Path = POWERCAP) -> ReadMillijoules | None:
    """Reads the energy used since some moment, or None where the device has no such counter.

    The reading raises gpu.CounterAbsentError if the counter is lost.
    """
    return None if absence_reason(device, powercap) else _open(device, powercap)


def absence_reason(device: str, powercap: Path = POWERCAP) -> str | None:
    """Why the device has no energy counter that this process may read; None = it has one."""
    if device == "cpu":
        readable = bool(_packages(powercap))
        return None if readable else "RAPL: no package counter, or only root may read it"
    try:
        gpu.total_energy_mj(parse_device(device).ordinal)
    except gpu.CounterAbsentError as error:
        return str(error)
    return None


def _open(device: str, powercap: Path) -> ReadMillijoules:
    if device == "cpu":
        zones = [_Zone(path) for path in _packages(powercap)]
        return lambda: sum(zone.read_uj() for zone in zones) / 1e3
    index = parse_device(device).ordinal
    return lambda: float(gpu.total_energy_mj(index))


def measure(read: ReadMillijoules, work: Callable[[], object]) -> Spent:
    """The counter's difference over `work`."""
    before, began = read(), time.perf_counter_ns()
    work()
    window_ns = time.perf_counter_ns() - began
    return Spent(energy_mj=read() - before, window_ns=max(1, window_ns))


def _packages(powercap: Path) -> list[Path]:
    """Folders of the processor packages; empty unless all of their counters can be read."""
    packages = [
        path
        for path in sorted(powercap.glob("intel-rapl:*"))
        if _ZONE.fullmatch(path.name) and _is_package(path)
    ]
    return packages if all(_is_readable(path) for path in packages) else []


def _is_package(path: Path) -> bool:
    try:
        return (path / "name").read_text().startswith("package")
    except OSError:
        return False


def _is_readable(path: Path) -> bool:
    """Whether this process may read the counter: most kernels allow only root to."""
    try:
        return _read_int(path / "energy_uj") >= 0 and _read_int(path / "max_energy_range_uj") > 0
    except (OSError, ValueError):
        return False


def _read_int(path: Path) -> int:
    return int(path.read_text())


class _Zone:
    """One package's counter, which overflows to 0 within minutes under load."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: int | None = None
        self._total = 0

    def read_uj(self) -> int:
        """Microjoules since the first reading."""
        now = _read_int(self._path / "energy_uj")
        if self._last is not None:
            full = _read_int(self._path / "max_energy_range_uj") if now < self._last else 0
            self._total += now - self._last + full
        self._last = now
        return self._total
