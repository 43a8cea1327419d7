from __future__ import annotations

import dataclasses

import pytest

from benchcore.planning.catalog import winograd_share
from benchcore.verdict.duel.physics import Ceilings, SentinelTime, Work, find_ceilings, judge_step
from benchcore.workloads.resnet50.spec import SPEC

MATMUL = SentinelTime(
    source="jax",
    workload="matmul",
    precision="fp32_ieee",
    flops=2 * 1024**3,
    least_bytes=12 << 20,
    step_ns=2e7,
)
COPY = SentinelTime(
    source="jax",
    workload="copy",
    precision="fp32_ieee",
    flops=0,
    least_bytes=512 << 20,
    step_ns=5e7,
)
CEILINGS = Ceilings(flops_per_s=100e9, bytes_per_s=10e9, compute_spread=1.0, bandwidth_spread=1.0)
COMPUTE = Work(flops=10**9, least_bytes=10**6, winograd_share=0.0, cache_bytes=32 << 20)
"""10 ms of arithmetic, and bytes that a cache holds."""
MEMORY = Work(flops=10**6, least_bytes=10**9, winograd_share=0.0, cache_bytes=0)
"""100 ms of memory, and next to no arithmetic."""


def test_the_ceiling_is_the_best_of_either_framework_in_that_precision() -> None:
    faster = dataclasses.replace(MATMUL, step_ns=1e7)
    tf32 = dataclasses.replace(MATMUL, precision="tf32", step_ns=1e6)
    ceilings = find_ceilings([MATMUL, faster, tf32, COPY], "fp32_ieee")
    assert ceilings.flops_per_s == pytest.approx(2 * 1024**3 / 0.01)
    assert ceilings.bytes_per_s == pytest.approx((512 << 20) / 0.05)


def test_autocast_runs_as_bf16_does() -> None:
    bf16 = dataclasses.replace(MATMUL, precision="bf16")
    assert find_ceilings([bf16], "bf16_autocast").flops_per_s is not None
    assert find_ceilings([bf16], "fp32_ieee").flops_per_s is None


@pytest.mark.parametrize(
    ("work", "step_ns", "share"),
    [
        (COMPUTE, 1e7, 1 / 1.10),
        (COMPUTE, 1e6, 10 / 1.10),
        (MEMORY, 1e8, 1 / 1.25),
        (MEMORY, 1e7, 10 / 1.25),
    ],
)
def test_a_step_is_compared_with_the_ceiling_that_limits_it(
    work: Work, step_ns: float, share: float
) -> None:
    finding = judge_step(work, CEILINGS, step_ns)
    assert finding.limit_share == pytest.approx(share)
    assert f"took {step_ns:.4g} ns" in finding.reason


def test_shares_are_of_the_plain_ceilings() -> None:
    finding = judge_step(COMPUTE, CEILINGS, 2e7)
    assert finding.compute_share == pytest.approx(0.5)
    assert finding.bandwidth_share == pytest.approx(0.005)


def test_winograd_may_save_three_quarters_of_eligible_convolutions() -> None:
    all_eligible = dataclasses.replace(COMPUTE, winograd_share=1.0)
    half = dataclasses.replace(COMPUTE, winograd_share=0.5)
    assert judge_step(all_eligible, CEILINGS, 2.5e6).limit_share == pytest.approx(1 / 1.10)
    assert judge_step(half, CEILINGS, 1e7).limit_share == pytest.approx(0.625 / 1.10)


def test_work_that_a_cache_may_hold_is_not_compared_with_memory() -> None:
    half_cached = dataclasses.replace(MEMORY, cache_bytes=10**9 // 4)
    assert judge_step(half_cached, CEILINGS, 1e8).limit_share == pytest.approx(0.5 / 1.25)
    assert judge_step(COMPUTE, Ceilings(flops_per_s=None, bytes_per_s=1.0), 1.0).limit_share == 0
    unknown = dataclasses.replace(MEMORY, cache_bytes=None)
    assert judge_step(unknown, CEILINGS, 1e7).limit_share == pytest.approx(1e-3 / 1.10)


def test_an_unmeasured_ceiling_is_reported_as_missing() -> None:
    nothing = judge_step(MEMORY, Ceilings(flops_per_s=None, bytes_per_s=None), 1.0)
    assert (nothing.limit_share, nothing.impossible) == (None, False)
    assert nothing.reason == "no ceiling measured: compute and bandwidth"
    assert nothing.unjudged == f"physics could not be judged: {nothing.reason}"
    half = judge_step(MEMORY, Ceilings(flops_per_s=100e9, bytes_per_s=None), 1e6)
    assert half.limit_share == pytest.approx(0.01 / 1.10)
    assert half.reason.endswith("no ceiling measured: bandwidth")
    assert half.unjudged == "physics could not be judged: no ceiling measured: bandwidth"


def test_bytes_that_a_cache_may_hold_need_no_ceiling() -> None:
    found = judge_step(COMPUTE, Ceilings(flops_per_s=100e9, bytes_per_s=None), 2e7)
    assert (found.unjudged, found.limit_share) == ("", pytest.approx(0.5 / 1.10))


def _at(*step_ns: float | None) -> list[SentinelTime]:
    """A product's sentinels: one contender each."""
    return [
        dataclasses.replace(MATMUL, source=str(index), step_ns=each)
        for index, each in enumerate(step_ns)
    ]


@pytest.mark.parametrize(
    ("sentinels", "step_ns", "impossible", "judged"),
    [
        ((2e7, 2e7), 1e7, False, True),  # as fast as the sentinels, for half of their work
        ((2e7, 2e7), 9e6, True, True),
        ((2e7, 2.5e7), 9e6, False, False),  # the sentinels differ by a quarter
        ((2e7, 2.5e7), 7e6, True, True),
        ((2e7,), 1e6, False, False),  # only one was measured
        ((2e7, None), 1e6, False, False),  # the other was disturbed
    ],
)
def test_a_step_is_blamed_only_beyond_what_the_sentinels_differ_by(
    sentinels: tuple[float | None, ...], step_ns: float, impossible: bool, judged: bool
) -> None:
    work = Work(flops=1024**3, least_bytes=0, winograd_share=0.0, cache_bytes=None)
    found = judge_step(work, find_ceilings(_at(*sentinels), "fp32_ieee"), step_ns)
    assert (found.impossible, found.unjudged == "") == (impossible, judged)
    if not judged:
        assert "which differ too much to rule it out" in found.unjudged


def test_two_starts_of_one_sentinel_do_not_confirm_each_other() -> None:
    assert find_ceilings([MATMUL, MATMUL], "fp32_ieee").compute_spread == float("inf")
    assert find_ceilings(_at(2e7, 3e7, 1e9), "fp32_ieee").compute_spread == pytest.approx(1.5)


def test_a_sentinel_that_was_always_disturbed_is_none_and_the_reason_says_so() -> None:
    ceilings = find_ceilings(_at(None), "fp32_ieee")
    assert (ceilings.flops_per_s, ceilings.disturbed) == (None, {"compute"})
    found = judge_step(COMPUTE, ceilings, 1.0)
    assert found.unjudged == (
        "physics could not be judged: no ceiling measured: compute (all blocks of its sentinels "
        "were disturbed)"
    )


def test_work_that_needs_nothing_lacks_no_ceiling() -> None:
    nothing = Work(flops=0, least_bytes=0, winograd_share=0.0, cache_bytes=None)
    assert judge_step(nothing, Ceilings(flops_per_s=None, bytes_per_s=None), 1.0).reason == ""


def test_resnet50s_eligible_convolutions_are_the_thirteen_that_keep_their_size() -> None:
    macs = 3 * 64 * 64 * 9 * 56**2 + 3 * 128**2 * 9 * 28**2
    macs += 5 * 256**2 * 9 * 14**2 + 2 * 512**2 * 9 * 7**2
    assert winograd_share("resnet50", "infer_b1") == 2 * macs / SPEC.flops(SPEC.cases["infer_b1"])
    assert winograd_share("mlp", "infer_b128") == winograd_share("gone", "gone") == 0.0
