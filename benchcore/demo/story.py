"""What happens in the made-up year: cases, releases, what each release changed. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path

from benchcore.environments.version_requests import Release
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import (
    JAX_NEWEST,
    JAX_PREVIOUS,
    TORCH_COMPILE,
    TORCH_EAGER,
    TORCH_PREVIOUS,
    Arm,
)
from benchcore.protocol import COMPARED, DuelLimits

PROFILE = "demo"
"""The profile of made-up campaigns; pages that show one are marked."""
MADE_UP = "Made up: `deadheat demo` generated every number here. Nothing was measured."
DEVICE = "Made-up GPU 80 GB"
DAYS = 365
_CONTROLLED_DAYS = 70
"""For this many days torch's previous version is measured beside the newest one."""
_DETAILED_DAYS = 14
"""For this many days latency, memory and energy of the nightly cases are measured every night."""
_CALIBRATED_DAYS = 60

_CALIBRATED = Match(
    workload="resnet50",
    case="infer_b1_bf16",
    arms=(JAX_NEWEST, TORCH_COMPILE),
    expected_s=15,
)
_NIGHTLY = (JAX_NEWEST, TORCH_COMPILE, JAX_PREVIOUS)
_WEEKLY = (JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER)
_LIMITS = DuelLimits(starts=3, rounds=2, passes=False)
_SENTINEL_ARMS = (JAX_NEWEST, TORCH_EAGER)


@dataclass(frozen=True, kw_only=True)
class DemoCase:
    """One case: JAX reaches `share` of the ceiling, and torch takes `edge` times JAX's time."""

    workload: str
    case: str
    share: float
    edge: float
    arms: tuple[Arm, ...] = _WEEKLY


def _nightly(workload: str, case: str, share: float, edge: float) -> DemoCase:
    return DemoCase(workload=workload, case=case, share=share, edge=edge, arms=_NIGHTLY)


def _weekly(workload: str, case: str, share: float, edge: float) -> DemoCase:
    return DemoCase(workload=workload, case=case, share=share, edge=edge)


NIGHTLY = (
    _nightly("resnet50", "infer_b1_bf16", 0.04, 1.65),
    _nightly("resnet50", "train_b32_bf16", 0.30, 1.21),
    _nightly("vit_b_16", "infer_b128_bf16", 0.46, 0.88),
)
"""Measured every night, beside the previous versions."""
WEEKLY = (
    _weekly("resnet50", "infer_b8_bf16", 0.16, 1.48),
    _weekly("resnet50", "infer_b32_bf16", 0.29, 1.34),
    _weekly("resnet50", "infer_b128_bf16", 0.38, 1.27),
    _weekly("resnet50", "infer_b128", 0.62, 1.02),
    _weekly("vit_b_16", "infer_b1_bf16", 0.09, 1.31),
    _weekly("vit_b_16", "infer_b8_bf16", 0.27, 1.04),
    _weekly("vit_b_16", "infer_b32_bf16", 0.41, 0.91),
    _weekly("vit_b_16", "train_b32_bf16", 0.39, 0.94),
    _weekly("mobilenet_v3_small", "infer_b1_bf16", 0.0011, 1.71),
    _weekly("mobilenet_v3_small", "infer_b8_bf16", 0.006, 1.42),
    _weekly("mobilenet_v3_small", "infer_b32_bf16", 0.02, 1.30),
    _weekly("mobilenet_v3_small", "infer_b128_bf16", 0.04, 1.22),
    _weekly("efficientnet_b0", "infer_b1_bf16", 0.003, 1.58),
    _weekly("efficientnet_b0", "infer_b8_bf16", 0.02, 1.45),
    _weekly("efficientnet_b0", "infer_b32_bf16", 0.05, 1.38),
    _weekly("efficientnet_b0", "infer_b128_bf16", 0.08, 1.33),
    _weekly("efficientnet_b0", "train_b32_bf16", 0.05, 0.99),
)
"""Measured on Sundays, of old ones every eighth, and in the newest two nights."""
_SENTINEL_CASES = (
    ("matmul", "gpu_8192"),
    ("matmul", "gpu_8192_bf16"),
    ("copy", "gpu_2g"),
)
CEILINGS: Mapping[str, float] = {"fp32_ieee": 52e12, "bf16": 780e12}
"""FLOP/s of the device by precision."""
BYTES_PER_S = 2.9e12


@dataclass(frozen=True)
class DemoRelease:
    """A version of a framework, released this many days before the last night."""

    framework: str
    version: str
    days_ago: int


RELEASES = (
    DemoRelease("jax", "0.10.0", 500),
    DemoRelease("jax", "0.10.1", 400),
    DemoRelease("jax", "0.10.2", 303),
    DemoRelease("jax", "0.11.0", 236),
    DemoRelease("jax", "0.11.1", 158),
    DemoRelease("jax", "0.12.0", 71),
    DemoRelease("jax", "0.12.1", 4),
    DemoRelease("torch", "2.10.0", 450),
    DemoRelease("torch", "2.11.0", 380),
    DemoRelease("torch", "2.12.0", 268),
    DemoRelease("torch", "2.13.0", 181),
    DemoRelease("torch", "2.14.0", 102),
    DemoRelease("torch", "2.15.0", 29),
    DemoRelease("torch", "2.15.1", 2),
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A release multiplies a metric of a case by `factor`."""

    version: str
    case: str
    factor: float
    metric: str = "median_step_ns"


CHANGES = (
    Change(version="0.10.2", case="vit_b_16 infer_b128_bf16", factor=0.94),
    Change(version="0.11.0", case="resnet50 train_b32_bf16", factor=1.07),
    Change(version="0.11.1", case="resnet50 train_b32_bf16", factor=1 / 1.07),
    Change(
        version="0.12.0", case="resnet50 train_b32_bf16", factor=0.88, metric="allocator_peak_bytes"
    ),
    Change(version="0.12.1", case="resnet50 infer_b1_bf16", factor=1.09),
    Change(version="2.12.0", case="resnet50 infer_b1_bf16", factor=0.84),
    Change(version="2.13.0", case="vit_b_16 infer_b128_bf16", factor=1.05),
    Change(version="2.14.0", case="vit_b_16 infer_b128_bf16", factor=0.8, metric="cold_compile_s"),
    Change(version="2.15.0", case="resnet50 train_b32_bf16", factor=0.955),
    Change(version="2.15.1", case="vit_b_16 infer_b128_bf16", factor=1.06),
)
_FOLLOWING = {
    **dict.fromkeys(("latency_p95_ns", "gross_mj", "host_dispatch_ns"), "median_step_ns"),
    **dict.fromkeys(("trace_s", "lower_s", "warm_compile_s"), "cold_compile_s"),
    "planned_bytes": "allocator_peak_bytes",
}
"""Metrics that change as another does."""
DRIVERS = ((365, "570.86"), (122, "580.11"), (35, "585.02"))
"""The driver since this many days before the last night: both sides change, the ratio does not."""
OUTLIERS = ((290, "vit_b_16"), (147, "resnet50"), (58, "resnet50"))
"""Nights in which something disturbed torch's side of a workload: no shift, and no event."""
VOID = {
    0: ("efficientnet_b0 infer_b8_bf16", "equivalence", "outputs agree", "outputs differ by "
        "0.031 where 0.02 is allowed"),
    1: ("vit_b_16 infer_b1_bf16", "parity", "same settings", "the two sides had different "
        "settings: matmul_precision 'bf16' on jax, 'tf32' on torch"),
}  # fmt: skip
"""By days before the last night: the pair that failed a check, its suite, expectation, reason."""
VOID_EVERY = 23
"""Days between nightly duels that are disturbed by foreign processes, and do not count."""
CRASHES = ((0, "vit_b_16 train_b32_bf16"), (190, "resnet50 train_b32_bf16"))
"""Nights in which JAX crashed while it compiled a case."""


def released(framework: str, days_ago: int) -> list[DemoRelease]:
    """A framework's releases on that day, the newest first."""
    return sorted(
        (each for each in RELEASES if each.framework == framework and each.days_ago >= days_ago),
        key=lambda each: each.days_ago,
    )


def resolve_requests(days_ago: int) -> dict[str, Release]:
    """What the version requests of the demo's arms mean on that day."""
    found: dict[str, Release] = {}
    for framework in COMPARED:
        for role, release in zip(
            ("newest", "previous"), released(framework, days_ago), strict=False
        ):
            found[f"{framework}@{role}"] = Release(
                framework=framework,  # type: ignore[arg-type]
                version=release.version,
                role=role,  # type: ignore[arg-type]
                python=Path("/made-up/bin/python"),
                python_version="3.12.11",
            )
    return found


@cache  # the year's contenders ask 30,000 times
def measure_factor(version: str, case: str, metric: str) -> float:
    """What the releases up to a version made of a metric of a case, against the first one."""
    metric = _FOLLOWING.get(metric, metric)
    framework = next(each.framework for each in RELEASES if each.version == version)
    versions = [each.version for each in RELEASES if each.framework == framework]
    factor = 1.0
    for each in CHANGES:
        since = each.version in versions and versions.index(each.version)
        if since is False or since > versions.index(version):
            continue
        if (each.metric, each.case) == (metric, case):
            factor *= each.factor
    return factor


def find_driver(days_ago: int) -> str:
    """The GPU's driver on that day."""
    return [name for since, name in DRIVERS if since >= days_ago][-1]


def make_profile(at: datetime, days_ago: int) -> Profile:
    """What is measured in a night. Older nights measure less, as every duel takes time to store."""
    is_whole = days_ago < 2 or (at.weekday() == 6 and (days_ago < 70 or days_ago % 56 < 7))
    more = (TORCH_PREVIOUS,) if days_ago < _CONTROLLED_DAYS else ()
    matches = [
        *(_match(each, is_whole or days_ago < _DETAILED_DAYS, more) for each in NIGHTLY),
        *(_match(each, passes=True) for each in WEEKLY if is_whole),
    ]
    if days_ago % 28 == 0 or days_ago == DAYS - 1:
        matches = [*(_match_sentinel(*each) for each in _SENTINEL_CASES), *matches]
    return Profile(
        name=PROFILE,
        matches=tuple(matches),
        device="cuda",
        limits=_LIMITS,
        calibration_matches=(_CALIBRATED,) if days_ago < _CALIBRATED_DAYS else (),
    )


def _match(case: DemoCase, passes: bool, more: tuple[Arm, ...] = ()) -> Match:
    return Match(
        workload=case.workload,
        case=case.case,
        arms=(*case.arms, *more),
        expected_s=60,
        limits=replace(_LIMITS, passes=passes),
    )


def _match_sentinel(workload: str, case: str) -> Match:
    return Match(
        workload=workload,
        case=case,
        arms=_SENTINEL_ARMS,
        expected_s=12,
        limits=_LIMITS.exactly(starts=1, rounds=4),
    )
