"""Latency of synchronised steps, and the share of it that the host causes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

FEWEST_FOR_P95 = 200
FEWEST_FOR_P99 = 1000
"""At least ten samples must lie beyond a percentile, or it depends on one or two outliers."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Nanoseconds of one synchronised step, over all starts. None = too few samples."""

    num_samples: int
    p50_ns: float
    p95_ns: float | None
    p99_ns: float | None
    mean_ns: float
    sd_ns: float | None
    min_ns: float
    max_ns: float


def summarise_latency(starts: Sequence[Sequence[int] | None]) -> Latency | None:
    """Summarise the samples of all starts together; None if there are none."""
    samples = sorted(chain.from_iterable(filter(None, starts)))
    if not samples:
        return None
    count, mean = len(samples), statistics.fmean(samples)
    # `statistics.stdev` is exact, and takes most of an ingest's time.
    sd = math.dist(samples, [mean] * count) / math.sqrt(count - 1) if count > 1 else None
    return Latency(
        num_samples=count,
        p50_ns=_percentile(samples, 50),
        p95_ns=_percentile(samples, 95) if count >= FEWEST_FOR_P95 else None,
        p99_ns=_percentile(samples, 99) if count >= FEWEST_FOR_P99 else None,
        mean_ns=mean,
        sd_ns=sd,
        min_ns=float(samples[0]),
        max_ns=float(samples[-1]),
    )


def host_boundness(latency_ns: float | None, step_ns: float | None) -> float | None:
    """Median synchronised latency over the time of a step in a queue; 1 = nothing overlaps.

    Well above 1, the host can run ahead of the device, and waiting for each step hides that.
    """
    if latency_ns is None or step_ns is None or not step_ns > 0 or math.isnan(latency_ns):
        return None
    return latency_ns / step_ns


def _percentile(ordered: Sequence[int], percent: int) -> float:
    """Linear between the two nearest samples, as numpy does by default."""
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
