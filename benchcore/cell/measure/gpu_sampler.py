"""Samples a GPU in a thread of the conductor while a block runs. Not run on a GPU.

After a block the clocks fall and the throttle reasons end within milliseconds, so a sample that is
taken once the contender is frozen describes an idle GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread

from benchcore.cell.measure import gpu

PERIOD_S = 0.025
"""Four samples in a block of 100 ms; the driver renews its readings every 20 to 100 ms."""


class GpuSampler:
    """Samples one GPU from its construction until `stop`."""

    def __init__(self, index: int, own_pids: frozenset[int], period_s: float = PERIOD_S) -> None:
        self._index = index
        self._own_pids = own_pids
        self._period_s = period_s
        self._ended = Event()
        self._samples: list[tuple[float, gpu.Sample]] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            taken = gpu.sample(self._index, self._own_pids)
            self._samples.append((time.monotonic(), taken))

    def stop(self) -> gpu.Sample:
        """What was sampled; a sample that ended after this call does not count."""
        asked_at = time.monotonic()
        self._ended.set()
        self._thread.join()
        within = [each for taken_at, each in self._samples if taken_at <= asked_at]
        if not within:
            reason = (
                f"the block ended before its first sample, due after {self._period_s * 1e3:g} ms"
            )
            return gpu.Sample(dict.fromkeys(gpu.COUNTERS), dict.fromkeys(gpu.COUNTERS, reason))
        return summarise(within)


def summarise(samples: Sequence[gpu.Sample]) -> gpu.Sample:
    """One sample for all: median clocks, every throttle reason that occurred, the highest
    temperature, mean power, the most foreign processes."""
    values: dict[str, float | int | None] = {}
    missing: dict[str, str] = {}
    for name in gpu.COUNTERS:
        known = [value for each in samples if (value := each.values[name]) is not None]
        values[name] = _SUMMARIES[name](known) if known else None
        if not known:
            missing[name] = samples[-1].missing[name]
    return gpu.Sample(values, missing)


def _join_bits(masks: Sequence[float]) -> int:
    joined = 0
    for mask in masks:
        joined |= int(mask)
    return joined


_SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sm_clock_mhz": statistics.median,
    "memory_clock_mhz": statistics.median,
    "throttle_reasons": _join_bits,
    "temperature_c": max,
    "power_mw": statistics.fmean,
    "foreign_processes": max,
}
