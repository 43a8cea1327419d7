"""Reject steps that are faster than the device's measured ceilings allow.

Ceilings come from two sentinel duels of the same campaign and device: a large matrix product
(`matmul`, one per precision) and a large array copied in place (`copy`, one for all: bytes have no
precision). A step beyond them, with every allowance, was not computed or not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMPUTE_SENTINEL = "matmul"
BANDWIDTH_SENTINEL = "copy"
SENTINELS = (COMPUTE_SENTINEL, BANDWIDTH_SENTINEL)

COMPUTE_SLACK = 1.10
"""Clocks vary, and a product of another shape may run slightly faster than the sentinel's."""
BANDWIDTH_SLACK = 1.25
"""As above. Also, pure reads are faster than the sentinel's mix of reads and writes."""
WINOGRAD_SAVING = 4.0
"""Multiplications saved on 3x3 convolutions of stride 1 by F(4x4, 3x3); F(2x2, 3x3) saves 2.25."""
LIMIT_SHARE = 1.0
"""Share of the device's capability, with every allowance; a step beyond it is impossible."""
GPU_CACHE_BYTES = 128 * 2**20
"""The largest second-level cache of any GPU so far (B200: 126 MB); NVML doesn't report it."""

_CEILING_OF = {"bf16_autocast": "bf16"}
"""Precisions whose products run in another precision."""


@dataclass(frozen=True, kw_only=True)
class SentinelTime:
    """The shortest mean step of any block of one sentinel contender, in nanoseconds."""

    workload: str
    precision: str
    flops: int
    least_bytes: int
    step_ns: float


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The highest rate of either framework's sentinel, per second; None = not measured."""

    flops_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Work:
    """The analytic work of a step. `winograd_share`: share of the FLOPs that Winograd may
    reduce."""

    flops: int
    least_bytes: int
    winograd_share: float
    cache_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class RooflineCheck:
    """A step compared with the ceilings.

    The shares refer to the plain ceilings; `limit_share` includes every allowance. None = the
    ceiling, or the step, was not measured. `reason` has the numbers.
    """

    compute_share: float | None
    bandwidth_share: float | None
    limit_share: float | None
    reason: str

    @property
    def impossible(self) -> bool:
        """Whether the step was shorter than its work can take."""
        return self.limit_share is not None and self.limit_share > LIMIT_SHARE


def find_ceilings(sentinels: Iterable[SentinelTime], precision: str) -> Ceilings:
    """The ceilings for work in a precision, from the sentinels of one campaign and device.

    From the fastest block, not a median: a ceiling is the capability of an undisturbed device.
    """
    sentinels = list(sentinels)
    wanted = _CEILING_OF.get(precision, precision)
    compute = [
        each.flops / each.step_ns * 1e9
        for each in sentinels
        if each.workload == COMPUTE_SENTINEL and each.precision == wanted
    ]
    bandwidth = [
        each.least_bytes / each.step_ns * 1e9
        for each in sentinels
        if each.workload == BANDWIDTH_SENTINEL
    ]
    return Ceilings(
        flops_per_s=max(compute, default=None), bytes_per_s=max(bandwidth, default=None)
    )


def judge_step(work: Work, ceilings: Ceilings, step_ns: float | None) -> RooflineCheck:
    """Compare a step with the roofline: the larger of its compute time and its memory time.

    Data that a cache may hold from step to step is subtracted twice, because it saves both the
    reading and the writing. Without a known cache, memory sets no limit.
    """
    missing = _name_missing(work, ceilings)
    if step_ns is None or (ceilings.flops_per_s is None and ceilings.bytes_per_s is None):
        return RooflineCheck(
            compute_share=None,
            bandwidth_share=None,
            limit_share=None,
            reason="no step measured" if step_ns is None else missing,
        )
    compute_ns = _time_ns(work.flops, ceilings.flops_per_s)
    memory_ns = _time_ns(work.least_bytes, ceilings.bytes_per_s)
    least_flops = work.flops * (1 - work.winograd_share * (1 - 1 / WINOGRAD_SAVING))
    beyond_cache = (
        0 if work.cache_bytes is None else max(0, work.least_bytes - 2 * work.cache_bytes)
    )
    least_ns = max(
        (_time_ns(least_flops, ceilings.flops_per_s) or 0.0) / COMPUTE_SLACK,
        (_time_ns(beyond_cache, ceilings.bytes_per_s) or 0.0) / BANDWIDTH_SLACK,
    )
    reason = (
        f"a step took {step_ns:.4g} ns; the ceilings ({_show(ceilings)}) allow no less than "
        f"{least_ns:.4g} ns for {work.flops:.4g} FLOP and {work.least_bytes:.4g} bytes"
    )
    return RooflineCheck(
        compute_share=None if compute_ns is None else compute_ns / step_ns,
        bandwidth_share=None if memory_ns is None else memory_ns / step_ns,
        limit_share=least_ns / step_ns,
        reason="; ".join(filter(None, (reason, missing))),
    )


def _time_ns(amount: float, per_s: float | None) -> float | None:
    return None if per_s is None else amount / per_s * 1e9


def _name_missing(work: Work, ceilings: Ceilings) -> str:
    missing = [
        name
        for name, amount, ceiling in (
            ("compute", work.flops, ceilings.flops_per_s),
            ("bandwidth", work.least_bytes, ceilings.bytes_per_s),
        )
        if amount and ceiling is None
    ]
    return f"no ceiling measured: {' and '.join(missing)}" if missing else ""


def _show(ceilings: Ceilings) -> str:
    shown = [
        "no compute ceiling"
        if ceilings.flops_per_s is None
        else f"{ceilings.flops_per_s / 1e9:.4g} GFLOP/s",
        "no bandwidth ceiling"
        if ceilings.bytes_per_s is None
        else f"{ceilings.bytes_per_s / 1e9:.4g} GB/s",
    ]
    return ", ".join(shown)
