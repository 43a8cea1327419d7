"""What limits a contender's step: a class, its reason in numbers, and advice.

A cause decides the class when it explains half of a step's time or more: no other can then be
larger. Four are held against each other:

- `compute` and `memory`: the least time that the step's work takes at the *measured* ceilings of
  its device (the roofline of Williams, Waterman and Patterson, CACM 52:4, 2009), as a share of the
  step. NVIDIA's Nsight Compute asks for 60 % of a peak before it names a bound: a peak is higher
  than a measured ceiling.
- the time outside kernels, as the framework's profiler saw it. It is `host-input` where the step
  takes arrays from the host, `sync` where it asks the device for a value, else `launch`. Fetching
  comes first: a copy from pageable memory waits as well.
- the transfers to a GPU, which run as kernels: `host-input`.

Operators too short to be worth a call are `launch`, too: eager torch on a CPU spends its dispatch
within its operators, where no profiler tells it from work. What explains less is `undecided`, and
says how far each cause came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Class = Literal["compute", "memory", "launch", "host-input", "sync", "undecided"]

DECISIVE_SHARE = 0.5
SHORT_KERNEL_NS = 5_000.0
"""A mean kernel below it is no longer than its launch. Operators of `mlp tiny_infer`, which compute
nothing to speak of, take 1.3 (eager) to 2.4 us (generated code) each on a CPU; the launch of a CUDA
kernel takes some microseconds (not run on a GPU)."""


@dataclass(frozen=True, kw_only=True)
class StepMeasurements:
    """Of one contender's step. None = not measured.

    The shares are those of `benchcore.verdict.duel.physics.RooflineCheck`, the times those of
    `benchcore.verdict.duel.step_profile.StepProfile`; `input_ns` is what transfers from the
    host took on a GPU; `program_bytes` what the compiled program accesses, by XLA's own count.
    """

    framework: str
    settings: Mapping[str, Any]
    on_gpu: bool
    timed: bool = True
    """Whether any undisturbed block gave its time, without which there are no shares."""
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
    """`intensity` is FLOP per least byte, `ridge` where the device's two ceilings meet;
    `host_share` is what share of a step lies outside kernels."""

    bottleneck: Class
    reason: str
    advice: str
    intensity: float | None
    ridge: float | None
    host_share: float | None


def find_bottleneck(step: StepMeasurements) -> Bottleneck:
    """The class of a contender that ran."""
    host_share = _share_outside(step)
    shares = _explain(step, host_share)
    kind, share = max(shares.items(), key=lambda item: item[1], default=("undecided", 0.0))
    if share < DECISIVE_SHARE:
        kind = _name_host(step) if _has_short_kernels(step) else "undecided"
    intensity = step.flops / step.least_bytes if step.flops and step.least_bytes else None
    return Bottleneck(
        bottleneck=kind,
        reason=_tell(kind, step, shares),
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
    """What share of a step each cause explains; causes that can't be told are left out."""
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
    """What fits the cache need not cross the memory border, whose bandwidth the ceiling is."""
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
    """The shares are compute and memory time over one step: their ratio is intensity over ridge."""
    if not intensity or not step.compute_share or not step.bandwidth_share:
        return None
    return intensity * step.bandwidth_share / step.compute_share


_CAUSES: Mapping[Class, str] = {
    "compute": "{share} arithmetic at the compute ceiling",
    "memory": "{share} traffic at the bandwidth ceiling",
    "launch": "{share} outside kernels",
    "sync": "{share} outside kernels, with a wait in it",
    "host-input": "{share} fetching inputs and what else is outside kernels",
}


def _tell(kind: Class, step: StepMeasurements, shares: Mapping[Class, float]) -> str:
    """How far each cause came, and what is not known of the rest."""
    told = [_CAUSES[cause].format(share=f"{share:.0%}") for cause, share in shares.items()]
    said = [f"of a step: {', '.join(told)}"] if told else []
    if _has_short_kernels(step):
        assert step.num_kernels and step.kernel_ns is not None
        mean_us = step.kernel_ns / step.num_kernels / 1e3
        said.append(
            f"{step.num_kernels:.0f} kernels of {mean_us:.2g} \u00b5s, no longer than a launch"
        )
    if kind == "undecided":
        said += _name_missing(step)
    return "; ".join(said)


def _name_missing(step: StepMeasurements) -> list[str]:
    missing = []
    if step.kernel_ns is None:
        missing.append("where its time goes was not profiled")
    if not step.timed:
        missing.append("no undisturbed block gave its time")
    elif step.compute_share is None and step.bandwidth_share is None:
        missing.append("no ceiling of the device was measured beside it")
    elif step.bandwidth_share is not None and _may_stay_in_cache(step):
        missing.append("its least bytes may stay in the cache")
    if step.program_bytes and step.least_bytes:
        times = step.program_bytes / step.least_bytes
        missing.append(f"its program accesses {times:.2g} times the least bytes")
    return missing


def _advise(kind: Class, step: StepMeasurements) -> str:
    """One line, by rule; empty where there is nothing to say."""
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
            return "measure it in a night, beside the device's ceilings"
        fuse = "compile, so that operators fuse; " if eager else ""
        return f"far from both ceilings: {fuse}look at its longest kernels"
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
