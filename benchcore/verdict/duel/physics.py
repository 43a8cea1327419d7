"""Reject steps that are faster than the device's measured ceilings allow.

Ceilings come from two sentinels of the same device: a large matrix product (`matmul`, one per
precision) and a large array copied in place (`copy`, one for all: bytes have no precision). A step
beyond them, with every allowance, was not computed or not waited for.

**When a contender is invalid.** The device can reach any rate that a sentinel reached, so the
highest rate counts: of either framework, in undisturbed blocks of this campaign or of the 30 days
before it. It may still be too low, if something unseen slowed the sentinels. So a contender is
`invalid_physics` only on two conditions. Its step exceeds the ceiling by more than the two best
sentinels differ. And the other framework does not exceed it: two implementations do not leave out
the same work. In a duel of one framework another environment stands for it, if their outputs agree.
Otherwise the sentinels are void, and the physics of the step is not judged. Either way the step
takes no part in a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from benchcore.cell.proof.canary import COMPUTED_IN

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

UNJUDGED = "physics could not be judged"
_UNCONFIRMED = "the step is faster than the sentinels, which differ too much to rule it out"
_BEYOND = "{} are faster than the sentinels, so these were probably disturbed"


@dataclass(frozen=True, kw_only=True)
class SentinelTime:
    """The shortest mean step of any undisturbed block of one start of a sentinel, in nanoseconds;
    None = every block was disturbed. `source` names the contender and its duel run."""

    source: str
    workload: str
    precision: str
    flops: int
    least_bytes: int
    step_ns: float | None

    def rate(self, amount: int) -> float | None:
        """An amount of a step, per second."""
        return None if self.step_ns is None else amount / self.step_ns * 1e9


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The highest rate of any sentinel, per second; None = not measured.

    A spread is that rate over the next best sentinel's; infinite where only one was measured.
    `disturbed` names those (`compute`, `bandwidth`) whose sentinels ran, but never undisturbed.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    compute_spread: float = math.inf
    bandwidth_spread: float = math.inf
    disturbed: frozenset[str] = frozenset()


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
    ceiling, or the step, was not measured. `reason` has the numbers. `impossible`: the step was
    shorter than its work can take. `unjudged` is why that can't be judged, in one sentence; "" = it
    can.
    """

    compute_share: float | None = None
    bandwidth_share: float | None = None
    limit_share: float | None = None
    impossible: bool = False
    unjudged: str = ""
    reason: str


def find_ceilings(sentinels: Iterable[SentinelTime], precision: str) -> Ceilings:
    """The ceilings for work in a precision, from the sentinels of one device.

    From the fastest block, not a median: a ceiling is the capability of an undisturbed device.
    """
    wanted = COMPUTED_IN.get(precision, precision)
    compute, bandwidth = dict[str, float](), dict[str, float]()
    ran: set[str] = set()
    for each in sentinels:
        if each.workload == COMPUTE_SENTINEL and each.precision == wanted:
            name, best, rate = "compute", compute, each.rate(each.flops)
        elif each.workload == BANDWIDTH_SENTINEL:
            name, best, rate = "bandwidth", bandwidth, each.rate(each.least_bytes)
        else:
            continue
        ran.add(name)
        if rate is not None:
            best[each.source] = max(rate, best.get(each.source, 0.0))
    measured = {name for name, best in (("compute", compute), ("bandwidth", bandwidth)) if best}
    return Ceilings(
        flops_per_s=max(compute.values(), default=None),
        bytes_per_s=max(bandwidth.values(), default=None),
        compute_spread=_spread(compute.values()),
        bandwidth_spread=_spread(bandwidth.values()),
        disturbed=frozenset(ran - measured),
    )


def _spread(rates: Collection[float]) -> float:
    """The highest over the second highest."""
    if len(rates) < 2:
        return math.inf
    second, first = sorted(rates)[-2:]
    return first / second


def judge_step(work: Work, ceilings: Ceilings, step_ns: float | None) -> RooflineCheck:
    """Compare a step with the roofline: the larger of its compute time and its memory time.

    Data that a cache may hold from step to step is subtracted twice, because it saves both the
    reading and the writing. Without a known cache, memory sets no limit.
    """
    missing = _name_missing(work, ceilings)
    if step_ns is None:
        return RooflineCheck(reason="no step measured")
    unjudged = f"{UNJUDGED}: {missing}" if missing else ""
    if ceilings.flops_per_s is None and ceilings.bytes_per_s is None:
        return RooflineCheck(reason=missing, unjudged=unjudged)
    compute_ns = _time_ns(work.flops, ceilings.flops_per_s)
    memory_ns = _time_ns(work.least_bytes, ceilings.bytes_per_s)
    least = _least_times(work, ceilings)
    spreads = {"compute": ceilings.compute_spread, "bandwidth": ceilings.bandwidth_spread}
    impossible = any(time / spreads[name] > step_ns * LIMIT_SHARE for name, time in least.items())
    least_ns = max(least.values())
    void = least_ns > step_ns * LIMIT_SHARE and not impossible
    if void:
        unjudged = f"{UNJUDGED}: {_UNCONFIRMED}"
    reason = (
        f"a step took {step_ns:.4g} ns; the ceilings ({_show(ceilings)}) allow no less than "
        f"{least_ns:.4g} ns for {work.flops:.4g} FLOP and {work.least_bytes:.4g} bytes"
    )
    return RooflineCheck(
        compute_share=None if compute_ns is None else compute_ns / step_ns,
        bandwidth_share=None if memory_ns is None else memory_ns / step_ns,
        limit_share=None if void else least_ns / step_ns,
        impossible=impossible,
        unjudged="" if impossible else unjudged,
        reason="; ".join(filter(None, (reason, missing))),
    )


def void_sentinels(finding: RooflineCheck, beyond: str) -> RooflineCheck:
    """The finding about an impossible step, where others (`beyond`, in words) have one, too."""
    why = _BEYOND.format(beyond)
    return replace(finding, limit_share=None, impossible=False, unjudged=f"{UNJUDGED}: {why}")


def _least_times(work: Work, ceilings: Ceilings) -> dict[str, float]:
    """Nanoseconds that the work takes at the ceilings, with every allowance."""
    flops = work.flops * (1 - work.winograd_share * (1 - 1 / WINOGRAD_SAVING))
    return {
        "compute": (_time_ns(flops, ceilings.flops_per_s) or 0.0) / COMPUTE_SLACK,
        "bandwidth": (_time_ns(_beyond_cache(work), ceilings.bytes_per_s) or 0.0) / BANDWIDTH_SLACK,
    }


def _beyond_cache(work: Work) -> int:
    """Bytes that no cache can hold from step to step; 0 where no cache is known."""
    return 0 if work.cache_bytes is None else max(0, work.least_bytes - 2 * work.cache_bytes)


def _time_ns(amount: float, per_s: float | None) -> float | None:
    return None if per_s is None else amount / per_s * 1e9


def _name_missing(work: Work, ceilings: Ceilings) -> str:
    """Bytes that a cache may hold need no ceiling."""
    missing = [
        name
        for name, amount, ceiling in (
            ("compute", work.flops, ceilings.flops_per_s),
            ("bandwidth", _beyond_cache(work), ceilings.bytes_per_s),
        )
        if amount and ceiling is None
    ]
    disturbed = " (all blocks of its sentinels were disturbed)"
    named = [f"{name}{disturbed if name in ceilings.disturbed else ''}" for name in missing]
    return f"no ceiling measured: {' and '.join(named)}" if named else ""


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
