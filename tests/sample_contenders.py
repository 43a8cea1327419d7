"""Contenders of a made-up night, and what was measured, proven and found of them, as rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from sample_nights import CASES, SampleCase, list_versions, nightly_campaign, start_of_night


def _contender(case: SampleCase, arm: str, version: str, role: str) -> dict[str, object]:
    framework = arm.partition("-")[0]
    factor = {"jax-jit": 1.0, "torch-eager": case.eager, "torch-compile": case.compiled}[arm]
    compiles = arm != "torch-eager"
    return {
        "campaign": nightly_campaign(0),
        "duel_run": f"{case.workload}-{case.case_name}-0",
        "started_at": pd.Timestamp(start_of_night(0)),
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
        "environment_key": f"{framework}-{version}-cp312-{abs(_hash_text(version)):08x}",
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


def _hash_text(text: str) -> int:
    """The same number in every process, unlike hash()."""
    return sum(ord(letter) * 2654435761**place % 2**32 for place, letter in enumerate(text, 1)) % (
        2**32
    )


def list_contenders() -> list[dict[str, object]]:
    """Those of the last night: fair ones, one without a framework, and one that crashed."""
    newest, previous, torch = list_versions(0)
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


def list_equivalence() -> list[dict[str, object]]:
    """What was compared of their outputs; those of resnet50 disagree."""
    rows = []
    newest, _, torch = list_versions(0)
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


def list_failed_checks() -> list[dict[str, object]]:
    """A pair that disagrees, and a start without counters of disturbances."""
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


def list_profiles() -> list[dict[str, object]]:
    """Profiles of those that ran with a framework."""
    ran = [row for row in list_contenders() if row["num_blocks"] and row["framework"] != "stdlib"]
    return [
        row
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


def list_bottlenecks() -> list[dict[str, object]]:
    """Bottlenecks of those that ran."""
    ran = [row for row in list_contenders() if row["num_blocks"]]
    return [
        row
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


def list_epochs() -> Iterator[dict[str, Any]]:
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
