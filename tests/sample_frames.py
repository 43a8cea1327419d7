"""Frames of a made-up but likely month of nights, as the store reads them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from benchcore.store.metrics import ON_PAGE
from dashboards.frames import select_rows

# fmt: off
RATIO_COLUMNS = (
    "campaign", "duel_run", "started_at", "workload", "case_name", "use_case", "batch",
    "precision", "track", "device_model", "device_fingerprint", "kind", "a", "b", "a_arm",
    "b_arm", "a_framework", "b_framework", "a_version", "b_version", "a_role", "b_role",
    "log_ratio", "low", "high", "num_starts", "start_log_ratios", "verdict", "reason", "scope",
    "counts", "method", "fair", "differences", "violations", "conditions",
)
CONTENDER_COLUMNS = (
    "campaign", "duel_run", "started_at", "workload", "case_name", "use_case", "batch",
    "precision", "name", "arm", "role", "framework", "version", "environment_key",
    "python_version", "build", "status", "cause", "stage", "reason", "num_starts", "num_blocks",
    "num_degraded", "num_unsteady",
    "median_step_ns", "import_s", "compile_s", "first_run_s", "warm_up_s", "stopped_by",
    "checkpoint", "passes_campaign",
    "compute_share", "bandwidth_share", "items_per_s", "cold_compile_s", "warm_compile_s",
    *(each.key for each in ON_PAGE),
)
EQUIVALENCE_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "a", "b", "quantity", "max_relative",
    "l2_relative", "tolerance", "agrees",
)
FAILED_CHECK_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "contender", "other", "suite", "expectation",
    "reason", "severity",
)
PROFILE_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "use_case", "batch", "precision", "track",
    "name", "arm", "framework", "version", "kernel_ns", "dispatch_ns", "python_calls",
    "num_kernels", "host_syncs", "copied_bytes", "longest",
)
BOTTLENECK_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "track", "name", "arm", "framework", "version",
    "intensity", "ridge", "compute_share", "bandwidth_share", "host_share", "host_boundness",
    "bottleneck", "reason", "advice",
)
EPOCH_COLUMNS = (
    "campaign", "workload", "case_name", "use_case", "batch", "precision", "track", "dataset",
    "mode", "num_val", "name", "arm", "framework", "version", "epoch", "num_starts", "num_degraded",
    "epoch_ns",
    "wait_share", "examples_per_s", "loss", "accuracy", "validation_ns", "gross_mj",
)
# fmt: on

LAST_NIGHT = datetime(2026, 11, 20, 23, 4, tzinfo=UTC)
DEVICE = "AMD EPYC 7763 64-Core Processor"


@dataclass(frozen=True)
class SampleCase:
    workload: str
    case_name: str
    use_case: str
    batch: int
    jax_step_ns: float
    eager: float
    """Speedup of JAX against torch eager."""
    compiled: float


CASES = (
    SampleCase("mlp", "infer_b128", "infer", 128, 3.4e5, 1.71, 1.012),
    SampleCase("mlp", "train_b128", "train", 128, 1.52e6, 2.36, 1.42),
    SampleCase("resnet50", "infer_b4", "infer", 4, 1.94e8, 0.83, 0.62),
)


@dataclass(frozen=True, kw_only=True)
class SampleFrames:
    """Rows as the frames of `benchcore.store.frames` have them."""

    ratios: pd.DataFrame
    contenders: pd.DataFrame
    equivalence: pd.DataFrame
    failed_checks: pd.DataFrame
    profiles: pd.DataFrame
    bottlenecks: pd.DataFrame
    epochs: pd.DataFrame


def nightly_campaign(night: int) -> str:
    return f"nightly-{_started_at(night):%Y-%m-%d}"


def _started_at(night: int) -> datetime:
    """Night 0 is the last one, night 1 the one before."""
    return LAST_NIGHT - timedelta(days=night)


def _versions(night: int) -> tuple[str, str, str]:
    """Newest jax, previous jax, newest torch of a night."""
    newest, previous = ("0.12.0.1", "0.12.0") if night < 6 else ("0.12.0", "0.11.2")
    return newest, previous, "2.15.0" if night < 14 else "2.14.1"


def _ratio(case: SampleCase, night: int, middle: float, rng: random.Random) -> dict[str, object]:
    width = rng.uniform(0.012, 0.03)
    center = math.log(middle) + rng.gauss(0, 0.008)
    inside = abs(center) < width
    return {
        "campaign": nightly_campaign(night),
        "duel_run": f"{case.workload}-{case.case_name}-{night}",
        "started_at": pd.Timestamp(_started_at(night)),
        "workload": case.workload,
        "case_name": case.case_name,
        "use_case": case.use_case,
        "batch": case.batch,
        "precision": "float32",
        "track": "default",
        "device_model": DEVICE,
        "device_fingerprint": "cpu-7763",
        "log_ratio": center,
        "low": center - width,
        "high": center + width,
        "num_starts": 5,
        "start_log_ratios": [center + rng.gauss(0, width / 2) for _ in range(5)],
        "verdict": "same" if inside else "different",
        "reason": "within +-3 % of equal speed" if inside else "the interval excludes 1x",
        "scope": "this node, over 3 compilations",
        "counts": True,
        "method": 1,
        "fair": True,
        "differences": [],
        "violations": [],
        "conditions": {"kernel": "Linux 6.8" if night < 10 else "Linux 6.1", "node": "node-1"},
    }


def _side(side: str, framework: str, arm: str, version: str, role: str) -> dict[str, object]:
    return {
        side: f"{arm}-{version}",
        f"{side}_arm": arm,
        f"{side}_framework": framework,
        f"{side}_version": version,
        f"{side}_role": role,
    }


def _night_ratios(night: int, rng: random.Random) -> list[dict[str, object]]:
    newest, previous, torch = _versions(night)
    rows = []
    for case in CASES:
        slip = 0.93 if night < 6 and case.case_name == "train_b128" else 1.0
        jax = {"newest": newest, "previous": previous}
        for role, version in jax.items():
            factor = slip if role == "newest" else 1.0
            for arm, middle in (("torch-eager", case.eager), ("torch-compile", case.compiled)):
                rows.append(
                    _ratio(case, night, middle * factor, rng)
                    | {"kind": "cross_framework"}
                    | _side("a", "jax", "jax-jit", version, role)
                    | _side("b", "torch", arm, torch, "newest")
                    | (_EAGER if arm == "torch-eager" else {})
                )
        rows.append(
            _ratio(case, night, slip, rng)
            | {"kind": "cross_version"}
            | _side("a", "jax", "jax-jit", newest, "newest")
            | _side("b", "jax", "jax-jit", previous, "previous")
        )
    return rows


_EAGER = {"fair": False, "differences": [["compiled", "yes", "no"]]}


def _doubt(row: dict[str, object]) -> dict[str, object]:
    """The last night's compiled resnet50 did not pass its checks; its version row has one start."""
    if row["campaign"] != nightly_campaign(0) or row["workload"] != "resnet50":
        return row
    if row["b_arm"] == "torch-compile":
        return row | {
            "counts": False,
            "verdict": "unknown",
            "reason": "equivalence: outputs differ by 4.1e-03 where 1.0e-03 is allowed",
        }
    if row["b_arm"] == "torch-eager" and row["a_role"] == "previous":
        threads = "threads '2' on jax, '1' on torch"
        return row | {
            "counts": False,
            "verdict": "unknown",
            "reason": f"the two sides had different settings: {threads}",
            "differences": [["threads", "2", "1"], ["compiled", "yes", "no"]],
            "violations": [threads],
        }
    if row["kind"] == "cross_version":
        nan = math.nan
        return row | {
            "low": nan,
            "high": nan,
            "num_starts": 1,
            "start_log_ratios": [row["log_ratio"]],
            "verdict": "unknown",
            "scope": "this start",
            "reason": "one start only raises a suspicion",
        }
    return row


def _contender(case: SampleCase, arm: str, version: str, role: str) -> dict[str, object]:
    framework = arm.partition("-")[0]
    factor = {"jax-jit": 1.0, "torch-eager": case.eager, "torch-compile": case.compiled}[arm]
    compiles = arm != "torch-eager"
    return {
        "campaign": nightly_campaign(0),
        "duel_run": f"{case.workload}-{case.case_name}-0",
        "started_at": pd.Timestamp(_started_at(0)),
        "workload": case.workload,
        "case_name": case.case_name,
        "use_case": case.use_case,
        "batch": case.batch,
        "precision": "float32",
        "name": f"{arm}-{version}",
        "arm": arm,
        "role": role,
        "framework": framework,
        "version": version,
        "environment_key": f"{framework}-{version}-cp312-{abs(hash_text(version)):08x}",
        "python_version": "3.12.11",
        "build": "cpu" if framework == "jax" else "2.15.0+cpu",
        "status": "ok",
        "stage": None,
        "cause": None,
        "reason": None,
        "num_starts": 5,
        "num_blocks": 30,
        "num_degraded": 2,
        "num_unsteady": 1,
        "median_step_ns": case.jax_step_ns * factor,
        "import_s": 1.31 if framework == "jax" else 2.84,
        "compile_s": (0.84 if framework == "jax" else 14.2) if compiles else math.nan,
        "first_run_s": 0.021,
        "warm_up_s": 0.55,
        "process_peak_bytes": 6.1e8 if framework == "jax" else 8.9e8,
        "process_baseline_bytes": 2.4e8,
        "planned_bytes": 1.2e8 if framework == "jax" else math.nan,
        "allocator_peak_bytes": math.nan,
        "latency_p50_ns": case.jax_step_ns * factor * 1.04,
        "latency_p95_ns": case.jax_step_ns * factor * 1.1 if case.workload == "mlp" else math.nan,
        "host_boundness": 1.04,
        "gross_mj": math.nan,
        "net_mj": math.nan,
        "stopped_by": "target" if case.workload == "mlp" else "budget",
        "checkpoint": None,
        "compute_share": 0.61 / factor,
        "bandwidth_share": math.nan,
        "items_per_s": case.batch / (case.jax_step_ns * factor) * 1e9,
        "cold_compile_s": (0.84 if framework == "jax" else 14.2) if compiles else math.nan,
        "warm_compile_s": (0.11 if framework == "jax" else 2.9) if compiles else math.nan,
    }


def hash_text(text: str) -> int:
    """The same number in every process, unlike hash()."""
    return sum(ord(letter) * 2654435761**place % 2**32 for place, letter in enumerate(text, 1)) % (
        2**32
    )


def _contenders() -> list[dict[str, object]]:
    newest, previous, torch = _versions(0)
    rows = []
    for case in CASES:
        rows += [
            _contender(case, "jax-jit", newest, "newest"),
            _contender(case, "jax-jit", previous, "previous"),
            _contender(case, "torch-eager", torch, "newest"),
            _contender(case, "torch-compile", torch, "newest"),
        ]
    bare = rows[0] | {
        "workload": "noop",
        "case_name": "bare",
        "use_case": "op",
        "name": "stdlib",
        "arm": "stdlib",
        "framework": "stdlib",
        "version": "3.12.11",
        "build": None,
        "median_step_ns": 412.0,
        "compile_s": math.nan,
        "cold_compile_s": math.nan,
        "warm_compile_s": math.nan,
        "import_s": math.nan,
        "process_peak_bytes": 1.9e7,
        "planned_bytes": math.nan,
        "stopped_by": "no_pair",
        "checkpoint": None,
        "compute_share": math.nan,
    }
    failed = rows[-1] | {
        "name": "torch-compile-2.16.0.dev20261119",
        "version": "2.16.0.dev20261119",
        "role": "pinned",
        "status": "crash",
        "stage": "compile",
        "cause": "exception",
        "reason": "the process ended by signal 11 while compiling\n"
        "Traceback (most recent call last):\n"
        '  File "in_torch.py", line 41, in build\n    step = torch.compile(model)\n'
        "torch._inductor.exc.InductorError: C++ compile error: <vector> not found & gave up",
        "items_per_s": math.nan,
        "median_step_ns": math.nan,
        "compile_s": math.nan,
        "cold_compile_s": math.nan,
        "warm_compile_s": math.nan,
        "first_run_s": math.nan,
        "warm_up_s": math.nan,
        "process_peak_bytes": math.nan,
        "num_blocks": 0,
        "num_degraded": math.nan,
        "num_unsteady": math.nan,
        "num_starts": 0,
    }
    return [*rows, bare, failed]


def _equivalence() -> list[dict[str, object]]:
    rows = []
    newest, _, torch = _versions(0)
    for case in CASES:
        bad = case.workload == "resnet50"
        for quantity in ("outputs", "gradients") if case.use_case == "train" else ("outputs",):
            rows.append(
                {
                    "campaign": nightly_campaign(0),
                    "duel_run": f"{case.workload}-{case.case_name}-0",
                    "workload": case.workload,
                    "case_name": case.case_name,
                    "a": f"jax-jit-{newest}",
                    "b": f"torch-compile-{torch}",
                    "quantity": quantity,
                    "max_relative": 4.1e-3 if bad else 3.1e-6,
                    "l2_relative": 9.0e-4 if bad else 8.8e-7,
                    "tolerance": 1e-3 if bad else 1e-4,
                    "agrees": not bad,
                }
            )
    return rows


def _marks() -> list[dict[str, object]]:
    return [
        {
            "campaign": nightly_campaign(0),
            "duel_run": "resnet50-infer_b4-0",
            "workload": "resnet50",
            "case_name": "infer_b4",
            "contender": "torch-compile-2.15.0",
            "other": "jax-jit-0.12.0.1",
            "suite": "equivalence",
            "expectation": "outputs agree within the case's tolerance",
            "reason": "outputs differ by 4.1e-03 where 1.0e-03 is allowed",
            "severity": "critical",
        },
        {
            "campaign": nightly_campaign(0),
            "duel_run": "mlp-infer_b128-0",
            "workload": "mlp",
            "case_name": "infer_b128",
            "contender": None,
            "other": None,
            "suite": "telemetry",
            "expectation": "disturbances counted",
            "reason": "start 0 has blocks without counters of disturbances (steal_share: unknown)",
            "severity": "warning",
        },
    ]


def _profiles() -> list[dict[str, object]]:
    ran = [row for row in _contenders() if row["num_blocks"] and row["framework"] != "stdlib"]
    return [
        {key: row[key] for key in PROFILE_COLUMNS if key in row}
        | {
            "kernel_ns": 0.9 * float(str(row["median_step_ns"])),
            "dispatch_ns": 0.1 * float(str(row["median_step_ns"])),
            "python_calls": 1.0 if row["framework"] == "jax" else 1365.0,
            "num_kernels": 43.0,
            "host_syncs": 0.0,
            "copied_bytes": 0.0,
            "longest": "ynn_fusion.2 [dot] 41 %; dot.1 12 %",
        }
        for row in ran
    ]


def _bottlenecks() -> list[dict[str, object]]:
    ran = [row for row in _contenders() if row["num_blocks"]]
    return [
        {key: row[key] for key in BOTTLENECK_COLUMNS if key in row}
        | {
            "intensity": math.nan if row["workload"] == "noop" else 91.3,
            "ridge": 20.4,
            "host_share": 0.08,
            "bottleneck": "undecided" if row["workload"] == "noop" else "compute",
            "reason": "of a step: 61 % arithmetic at the compute ceiling, 8 % outside kernels",
            "advice": "compute-bound: a lower precision (TF32, bf16) where the device has it",
        }
        for row in ran
    ]


def _epochs() -> Iterator[dict[str, Any]]:
    """Two epochs of both sides on a folder of images; no counter of energy."""
    for framework, version, arm in (
        ("jax", "0.12.0", "jax-jit"),
        ("torch", "2.15.0", "torch-compile"),
    ):
        for epoch in range(2):
            yield {
                "campaign": nightly_campaign(0),
                "workload": "resnet50",
                "case_name": "epochs_b32_224px",
                "use_case": "train",
                "batch": 32,
                "precision": "fp32_ieee",
                "track": "default",
                "dataset": "imagenet-100",
                "mode": "end-to-end",
                "num_val": 5000,
                "name": f"{arm}-{version}",
                "arm": arm,
                "framework": framework,
                "version": version,
                "epoch": epoch,
                "num_starts": 3,
                "num_degraded": 1,
                "epoch_ns": 81e9,
                "wait_share": 0.42,
                "examples_per_s": 1561.0,
                "loss": 4.2 - epoch,
                "accuracy": 0.1 + epoch / 10,
                "validation_ns": 4e9,
                "gross_mj": None,
            }


def sample_frames(num_nights: int = 24, seed: int = 7) -> SampleFrames:
    """Nights up to the last one; the last has a crash, a failed check and a one-start pair."""
    rng = random.Random(seed)
    ratios = [
        _doubt(row) for night in reversed(range(num_nights)) for row in _night_ratios(night, rng)
    ]
    return SampleFrames(
        ratios=pd.DataFrame(ratios, columns=list(RATIO_COLUMNS)),
        contenders=pd.DataFrame(_contenders(), columns=list(CONTENDER_COLUMNS)),
        equivalence=pd.DataFrame(_equivalence(), columns=list(EQUIVALENCE_COLUMNS)),
        failed_checks=pd.DataFrame(_marks(), columns=list(FAILED_CHECK_COLUMNS)),
        profiles=pd.DataFrame(_profiles(), columns=list(PROFILE_COLUMNS)),
        bottlenecks=pd.DataFrame(_bottlenecks(), columns=list(BOTTLENECK_COLUMNS)),
        epochs=pd.DataFrame(_epochs(), columns=list(EPOCH_COLUMNS)),
    )


def of_campaign(frame: pd.DataFrame, campaign: str) -> pd.DataFrame:
    """The rows of one campaign, freshly indexed."""
    return select_rows(frame, frame["campaign"] == campaign).reset_index(drop=True)
