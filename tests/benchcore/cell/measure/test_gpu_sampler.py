"""A GPU is sampled while a block runs: here one whose clock shows whether it works."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from benchcore.cell.measure import gpu, gpu_sampler
from benchcore.cell.measure.gpu_sampler import GpuSampler, summarise
from benchcore.cell.measure.host import TelemetrySampler


def _sample(**changes: Any) -> gpu.Sample:
    values = dict.fromkeys(gpu.COUNTERS, 1) | changes
    missing = {name: "refused" for name, value in values.items() if value is None}
    return gpu.Sample(values, missing)


class _Board:
    """Clocks up while it works, and names the threads that read it."""

    def __init__(self, query_s: float = 0.0) -> None:
        self.works = False
        self.query_s = query_s
        self.readers: set[str] = set()

    def sample(self, index: int, own_pids: frozenset[int]) -> gpu.Sample:
        self.readers.add(threading.current_thread().name)
        clock = 1980 if self.works else 345
        time.sleep(self.query_s)
        return _sample(sm_clock_mhz=clock, throttle_reasons=0x20 if self.works else 0x1)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> _Board:
    found = _Board()
    monkeypatch.setattr(gpu, "sample", found.sample)
    return found


def test_a_block_has_the_clocks_of_its_work_and_not_of_the_pause_after_it(board: _Board) -> None:
    telemetry = TelemetrySampler("cuda:0")
    telemetry.begin(frozenset())
    board.works = True
    time.sleep(0.2)
    board.works = False  # the block is over, its contender frozen
    found = telemetry.sample(frozenset())
    assert (found["sm_clock_mhz"], found["missing"]) == (1980, {})
    assert found["throttle_reasons"] & 0x20
    assert threading.main_thread().name not in board.readers
    assert threading.active_count() == len(threading.enumerate())


def test_a_sample_that_ends_after_the_block_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = _Board(query_s=0.2)
    monkeypatch.setattr(gpu, "sample", slow.sample)
    sampler = GpuSampler(0, frozenset(), period_s=0.01)
    time.sleep(0.1)
    found = sampler.stop()
    assert set(found.values.values()) == {None}


def test_a_block_shorter_than_the_period_has_null_with_its_reason(board: _Board) -> None:
    found = GpuSampler(0, frozenset(), period_s=60.0).stop()
    assert found.values == dict.fromkeys(gpu.COUNTERS)
    assert set(found.missing.values()) == {
        "the block ended before its first sample, due after 60000 ms"
    }
    assert not board.readers


def test_samples_of_a_block_are_merged_into_one() -> None:
    found = summarise(
        [
            _sample(sm_clock_mhz=1000, throttle_reasons=0x4, temperature_c=50, power_mw=100),
            _sample(sm_clock_mhz=1900, throttle_reasons=0x8, temperature_c=60, power_mw=None),
            _sample(sm_clock_mhz=1800, throttle_reasons=0x0, temperature_c=55, power_mw=200),
            _sample(sm_clock_mhz=1800, foreign_processes=3, throttle_reasons=None),
        ]
    )
    assert found.values == {
        "sm_clock_mhz": 1800,
        "memory_clock_mhz": 1,
        "throttle_reasons": 0xC,
        "temperature_c": 60,
        "power_mw": pytest.approx(301 / 3),
        "foreign_processes": 3,
    }
    assert found.missing == {}


def test_a_reading_missing_from_every_sample_stays_null_with_its_reason() -> None:
    found = summarise([_sample(power_mw=None)] * 2)
    assert (found.values["power_mw"], found.missing) == (None, {"power_mw": "refused"})


def test_a_cpu_has_no_sampler() -> None:
    before = threading.active_count()
    telemetry = TelemetrySampler("cpu")
    telemetry.begin(frozenset())
    assert threading.active_count() == before
    found = telemetry.sample(frozenset())
    assert "missing" not in found
    assert {found[name] for name in gpu.COUNTERS} == {None}
    assert gpu_sampler.PERIOD_S < 0.1  # several samples in a block
