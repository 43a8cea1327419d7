"""The bottleneck of a contender's step: a class, the reason in numbers, and advice.

A cause decides the class if it explains at least half of a step's time: no other can then be
larger. Four causes are compared:

- `compute` and `memory`: the minimum time for the step's work at the *measured* ceilings of its
  device (the roofline of Williams, Waterman and Patterson, CACM 52:4, 2009), as a share of the
  step. NVIDIA's Nsight Compute requires 60 % of a peak before it names a bound, but a peak is
  higher than a measured ceiling.
- the time outside kernels, from the framework's profiler. It is `host-input` if the step takes
  arrays from the host, `sync` if it waits for a value from the device, else `launch`. Input is
  checked first, because a copy from pageable memory also waits.
- transfers to a GPU, which run as kernels: `host-input`.

Very short operators are `launch`, too: eager torch on a CPU dispatches inside its operators, where
a profiler can't separate dispatch from work. If no cause explains half, the class is `undecided`,
and the reason has each cause's share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchcore.names import format_percent

Class = Literal["compute", "memory", "launch", "host-input", "sync", "undecided"]

DECISIVE_SHARE = 0.5
SHORT_KERNEL_NS = 5_000.0
"""A shorter mean kernel takes no longer than its launch. Operators of `mlp tiny_infer`, which do
almost no work, take 1.3 (eager) to 2.4 us (generated code) each on a CPU. The launch of a CUDA
kernel takes some microseconds (not run on a GPU)."""


@dataclass(frozen=True, kw_only=True)
class StepMeasurements:
    """Measurements of one contender's step. None = not measured.

    The shares are from `benchcore.verdict.duel.physics.RooflineCheck`, the times from
    `benchcore.verdict.duel.step_profile.StepProfile`; `input_ns` is the time of transfers from the
    host to a GPU; `program_bytes` are the bytes that the compiled program accesses, counted by XLA.
    """

    framework: str
    settings: Mapping[str, Any]
    on_gpu: bool
    timed: bool = True
    """Whether an undisturbed block measured its time; without it there are no shares."""
    flops: int
    least_bytes: int
    cache_bytes: int | None = None
    compute_share: float | None = None
    bandwidth_share: float | None = None
    kernel_ns: float | None = None
    dispatch_ns: float | None = None
    num_kernels: float | None = None
    host_syncs: float | None = None
    host_copies: float | None = None
    input_ns: float | None = None
    program_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """`intensity` is FLOP per least byte, `ridge` the intensity at which the device's ceilings
    meet; `host_share` is the share of a step outside kernels."""

    bottleneck: Class
    reason: str
    advice: str
    intensity: float | None
    ridge: float | None
    host_share: float | None


def find_bottleneck(step: StepMeasurements) -> Bottleneck:
    """The class of a contender that ran, with its reason."""
    host_share = _share_outside(step)
    shares = _explain(step, host_share)
    kind, share = max(shares.items(), key=lambda item: item[1], default=("undecided", 0.0))
    if share < DECISIVE_SHARE:
        kind = _name_host(step) if _has_short_kernels(step) else "undecided"
    intensity = step.flops / step.least_bytes if step.flops and step.least_bytes else None
    return Bottleneck(
        bottleneck=kind,
        reason=_describe_shares(kind, step, shares),
        advice=_advise(kind, step),
        intensity=intensity,
        ridge=_find_ridge(step, intensity),
        host_share=host_share,
    )


def _share_outside(step: StepMeasurements) -> float | None:
    if step.kernel_ns is None or step.dispatch_ns is None:
        return None
    return step.dispatch_ns / (step.kernel_ns + step.dispatch_ns)


def _explain(step: StepMeasurements, host_share: float | None) -> dict[Class, float]:
    """The share of a step that each cause explains; causes without a measurement are left out."""
    shares: dict[Class, float] = {}
    if step.compute_share is not None and step.flops:
        shares["compute"] = step.compute_share
    if step.bandwidth_share is not None and step.least_bytes and not _may_stay_in_cache(step):
        shares["memory"] = step.bandwidth_share
    if host_share is not None:
        kind = _name_host(step)
        shares[kind] = host_share
        if kind == "host-input" and step.input_ns:
            assert step.kernel_ns is not None and step.dispatch_ns is not None
            shares[kind] += step.input_ns / (step.kernel_ns + step.dispatch_ns)
    return shares


def _may_stay_in_cache(step: StepMeasurements) -> bool:
    """Data that fits in the cache may not use the memory bandwidth that the ceiling measures."""
    return step.cache_bytes is not None and step.least_bytes <= step.cache_bytes


def _name_host(step: StepMeasurements) -> Class:
    if step.host_copies:
        return "host-input"
    return "sync" if step.host_syncs else "launch"


def _has_short_kernels(step: StepMeasurements) -> bool:
    if not step.num_kernels or step.kernel_ns is None:
        return False
    return step.kernel_ns / step.num_kernels < SHORT_KERNEL_NS


def _find_ridge(step: StepMeasurements, intensity: float | None) -> float | None:
    """The shares are compute and memory time over one step, so their ratio is intensity / ridge."""
    if not intensity or not step.compute_share or not step.bandwidth_share:
        return None
    return intensity * step.bandwidth_share / step.compute_share


_CAUSES: Mapping[Class, str] = {
    "compute": "{share} arithmetic at the compute ceiling",
    "memory": "{share} traffic at the bandwidth ceiling",
    "launch": "{share} outside kernels",
    "sync": "{share} outside kernels, with a wait in it",
    "host-input": "{share} fetching inputs and other time outside kernels",
}


def _describe_shares(kind: Class, step: StepMeasurements, shares: Mapping[Class, float]) -> str:
    """Each cause's share, and what is unknown of the rest."""
    shown = [_CAUSES[cause].format(share=format_percent(share)) for cause, share in shares.items()]
    parts = [f"of a step: {', '.join(shown)}"] if shown else []
    if _has_short_kernels(step):
        assert step.num_kernels and step.kernel_ns is not None
        mean_us = step.kernel_ns / step.num_kernels / 1e3
        parts.append(
            f"{step.num_kernels:.0f} kernels of {mean_us:.2g} \u00b5s, no longer than a launch"
        )
    if kind == "undecided":
        parts += _name_missing(step)
    return "; ".join(parts)


def _name_missing(step: StepMeasurements) -> list[str]:
    missing = []
    if step.kernel_ns is None:
        missing.append("no profile of the step")
    if not step.timed:
        missing.append("no undisturbed block measured its time")
    elif step.compute_share is None and step.bandwidth_share is None:
        missing.append("no ceiling of the device was measured then or in the 30 days before")
    elif step.bandwidth_share is not None and _may_stay_in_cache(step):
        missing.append("its least bytes may stay in the cache")
    if step.program_bytes and step.least_bytes:
        times = step.program_bytes / step.least_bytes
        missing.append(f"its program accesses {times:.2g} times the least bytes")
    return missing


def _advise(kind: Class, step: StepMeasurements) -> str:
    """One line, by rule; empty if there is nothing to advise."""
    eager = step.settings.get("compile") == "none"
    if kind == "launch":
        return _advise_launch(step, eager)
    if kind == "memory":
        fuse = "compile, so that operators fuse; " if eager else ""
        return f"memory-bound: {fuse}fewer bytes (bf16), or a larger batch for the same weights"
    if kind == "undecided":
        if not step.timed:
            return "measure it again on a quiet machine"
        if step.kernel_ns is None or step.compute_share is None:
            return "measure it in a nightly campaign, together with the device's ceilings"
        fuse = "compile, so that operators fuse; " if eager else ""
        return f"far from both ceilings: {fuse}check its longest kernels"
    return _ADVICE[kind]


_ADVICE: Mapping[Class, str] = {
    "compute": "compute-bound: a lower precision (TF32, bf16) where the device has it, or less "
    "arithmetic",
    "sync": "sync-bound: keep values on the device, and read them once in many steps",
    "host-input": "input-bound: keep inputs on the device, or fetch the next while a step runs",
}


def _advise_launch(step: StepMeasurements, eager: bool) -> str:
    graphs = step.settings.get("compile") in ("reduce-overhead", "max-autotune")
    if step.framework == "jax":
        graphs = step.settings.get("command_buffers", "on") == "on"
    means = ["compile"] if eager else []
    if step.on_gpu and not graphs:
        means.append("CUDA graphs")
    if step.framework == "jax":
        means.append("several steps in one call (lax.scan)")
    return f"launch-bound: {', '.join(means)}{' or ' if means else ''}a larger batch"
