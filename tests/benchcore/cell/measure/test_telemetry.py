"""The telemetry of a real machine sees who else is at work."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchcore.cell.measure import host
from benchcore.cell.measure.host import TelemetrySampler, usable_cpus

_SPIN = "while True: pass"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _sample(*known: frozenset[int]) -> list[float]:
    """The foreign share of one and the same second, to each who knows these for its own."""
    samplers = [TelemetrySampler("cpu") for _ in known]
    for sampler, own_pids in zip(samplers, known, strict=True):
        sampler.begin(own_pids)
    time.sleep(1.0)
    taken = [each.sample(own_pids) for each, own_pids in zip(samplers, known, strict=True)]
    return [float(each["foreign_cpu_share"] or 0.0) for each in taken]


def test_a_busy_foreign_process_is_seen_and_our_own_is_not() -> None:
    spinners = [
        subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(max(1, usable_cpus()))
    ]
    try:
        pids = frozenset(spinner.pid for spinner in spinners)
        time.sleep(0.3)
        ours, foreign = _sample(pids, frozenset())
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert foreign > 0.3
    assert ours < foreign  # by what the spinners got, little where others keep the machine busy


def _write_proc(proc: Path, ticks: dict[str, int]) -> None:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest")
    one = " ".join(str(ticks.get(name, 0)) for name in names)
    (proc / "stat").write_text(f"cpu  {one}\ncpu0 {one}\ncpu9 {'9 ' * 9}\nintr 1\n")
    (proc / "42").mkdir(exist_ok=True)
    own = f"42 (a (b) c) S {'0 ' * 10}{ticks.get('own', 0)} 0 0 0"
    (proc / "42" / "stat").write_text(own)


@pytest.mark.parametrize(
    ("ticks", "steal", "foreign"),
    [
        ({"user": 60, "own": 60, "idle": 20, "iowait": 20}, 0.0, 0.0),
        ({"user": 60, "own": 60, "idle": 20, "steal": 20}, 0.2, 0.0),
        ({"user": 60, "own": 40, "idle": 40}, 0.0, 0.2),
        ({"user": 50, "own": 30, "steal": 50}, 0.5, 0.2),
    ],
    ids=["alone", "stolen", "foreign", "both"],
)
def test_each_tick_of_a_cpu_is_idle_or_stolen_or_ours_or_foreign(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ticks: dict[str, int],
    steal: float,
    foreign: float,
) -> None:
    sample = _sample_fake_machine(monkeypatch, tmp_path, ticks, seconds=1.0)
    assert sample["steal_share"] == pytest.approx(steal)
    assert sample["foreign_cpu_share"] == pytest.approx(foreign)


def test_a_single_sample_has_no_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sample = _sample_fake_machine(monkeypatch, tmp_path, {"user": 9}, seconds=0.09)
    assert (sample["steal_share"], sample["foreign_cpu_share"]) == (None, None)


def _sample_fake_machine(
    monkeypatch: pytest.MonkeyPatch, proc: Path, ticks: dict[str, int], *, seconds: float
) -> dict[str, float | int | None]:
    """Counters of one CPU with a hundred ticks per second; the machine's other CPU is not ours."""
    clock = iter([100.0, 100.0 + seconds])
    monkeypatch.setattr(host, "_PROC", proc)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(host.time, "monotonic", lambda: next(clock))
    sampler = TelemetrySampler("cpu")
    _write_proc(proc, {})
    sampler.begin(frozenset({42}))
    _write_proc(proc, ticks)
    return sampler.sample(frozenset({42}))
