"""The telemetry of a real machine sees who else is at work."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchcore.cell.host import TelemetrySampler, usable_cpus

_SPIN = "while True: pass"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _sample(own_pids: frozenset[int]) -> float:
    sampler = TelemetrySampler("cpu")
    sampler.begin(own_pids)
    time.sleep(1.0)
    share = sampler.sample(own_pids)["foreign_cpu_share"]
    assert share is not None
    return share


def test_a_busy_foreign_process_is_seen_and_our_own_is_not() -> None:
    spinners = [
        subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(max(1, usable_cpus()))
    ]
    try:
        pids = frozenset(spinner.pid for spinner in spinners)
        time.sleep(0.3)
        ours, foreign = _sample(pids), _sample(frozenset())
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert foreign > 0.3  # also where others keep the machine busy beside us
    assert ours < foreign - 0.2


def test_a_moment_tells_nothing() -> None:
    sampler = TelemetrySampler("cpu")
    sampler.begin(frozenset())
    sample = sampler.sample(frozenset({os.getpid()}))
    assert (sample["steal_share"], sample["foreign_cpu_share"]) == (None, None)
