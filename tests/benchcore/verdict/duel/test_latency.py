"""Latency: which percentiles so many samples allow, and what waiting for each step costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchcore.verdict.duel.latency import host_boundness, summarise_latency


@pytest.mark.parametrize(
    ("count", "p95", "p99"),
    [
        (1, False, False),
        (199, False, False),
        (200, True, False),
        (999, True, False),
        (1000, True, True),
    ],
)
def test_a_percentile_needs_its_samples(count: int, p95: bool, p99: bool) -> None:
    latency = summarise_latency([list(range(count // 2)), None, list(range(count - count // 2))])
    assert latency is not None
    assert latency.num_samples == count
    assert (latency.p95_ns is not None, latency.p99_ns is not None) == (p95, p99)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 10**12), min_size=1000, max_size=1100))
def test_the_summary_is_numpys(samples: list[int]) -> None:
    latency = summarise_latency([samples])
    assert latency is not None
    assert latency.p50_ns == pytest.approx(np.percentile(samples, 50))
    assert latency.p95_ns == pytest.approx(np.percentile(samples, 95))
    assert latency.p99_ns == pytest.approx(np.percentile(samples, 99))
    assert latency.mean_ns == pytest.approx(np.mean(samples))
    assert latency.sd_ns == pytest.approx(np.std(samples, ddof=1), abs=1e-3)
    assert (latency.min_ns, latency.max_ns) == (min(samples), max(samples))


def test_nothing_measured_is_none_and_never_0() -> None:
    assert summarise_latency([]) is None
    assert summarise_latency([None, []]) is None
    assert host_boundness(None, 1.0) is None
    assert host_boundness(1.0, None) is None
    assert host_boundness(1.0, float("nan")) is None


def test_host_boundness_is_latency_over_throughput() -> None:
    assert host_boundness(3e6, 2e6) == 1.5
