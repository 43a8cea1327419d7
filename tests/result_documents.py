"""Builds valid result documents for tests, with knobs for what a test is about."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

from benchcore.cell.measure.host import describe_device
from benchcore.cell.result.start import STAGES
from benchcore.planning.matrix import Plan
from benchcore.protocol import METHOD
from benchcore.state import State

SLURM = {
    "job_id": "7",
    "node": "node01",
    "partition": "gpu",
    "gpus": ["0"],
    "queue_s": 1.5,
    "exclusive": False,
    "flow_run": "0b0e6b8a-0000-4000-8000-000000000000",
}
STARTED_AT = "2026-01-02T03:04:05+00:00"
DUEL_RUN = "0123456789abcdef"
CAMPAIGN = "nightly-2026-01-02"


@dataclass(frozen=True, kw_only=True)
class Racer:
    """One contender: a step takes `step_ns` times its start's factor, plus a bit per round."""

    name: str
    framework: str
    version: str
    arm: str = ""
    role: str = "newest"
    step_ns: float = 1e6
    start_factors: tuple[float, ...] = ()
    status: str = "ok"


JAX = Racer(name="jax-0.9", framework="jax", version="0.9.0", arm="jax-jit")
NEW_JAX = Racer(name="jax-0.9.1", framework="jax", version="0.9.1", arm="jax-jit")
OLD_JAX = Racer(name="jax-0.8", framework="jax", version="0.8.2", arm="jax-jit", role="previous")
TORCH = Racer(name="torch-2.10", framework="torch", version="2.10.0", arm="torch-compile")
OLD_TORCH = Racer(
    name="torch-2.9", framework="torch", version="2.9.1", arm="torch-compile", role="previous"
)


def make_document(
    racers: Sequence[Racer] = (JAX, TORCH),
    *,
    duel_run: str = DUEL_RUN,
    campaign: str = CAMPAIGN,
    starts: int = 3,
    rounds: int = 4,
    agrees: bool = True,
) -> dict[str, Any]:
    """A document as the conductor writes it: every pair with evidence, every start with blocks."""
    return {
        "schema": 1,
        "method": 1,
        "duel_run": duel_run,
        "campaign": campaign,
        "duel": _make_duel(starts, rounds),
        "harness": {"version": "0.1.0", "snapshot": "a" * 64},
        "allocation": _make_allocation(),
        "contenders": [_make_contender(racer, starts, rounds) for racer in racers],
        "equivalence": [
            make_evidence(a.name, b.name, agrees=agrees)
            for a, b in combinations(racers, 2)
            if "stdlib" not in (a.framework, b.framework)
        ],
    }


def make_plan(campaign: str, *, site: str = "local") -> Plan:
    """A campaign's plan in which nothing is left to measure."""
    empty: dict[str, Any] = {"releases": {}, "duels": (), "notes": ()}
    return Plan(schema=1, campaign=campaign, profile="laptop", site=site, **empty)


def make_history(
    logs: Sequence[float],
    racers: Sequence[Racer] = (JAX, TORCH),
    *,
    later: Sequence[Racer] = (),
    since: int | None = None,
    campaign: str = "history",
) -> list[dict[str, Any]]:
    """One document a night: the second racer takes e**log times its time. From night `since` on the
    racers are the `later` ones."""
    documents = []
    for night, log in enumerate(logs):
        a, b = racers if since is None or night < since else later
        b = replace(b, step_ns=b.step_ns * math.exp(log))
        named = {"duel_run": f"{night:016x}", "campaign": campaign}
        document = make_document((a, b), **named, starts=1, rounds=1)
        begun = datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(days=night)
        document["allocation"]["started_at"] = begun.isoformat()
        document["allocation"]["ended_at"] = (begun + timedelta(minutes=5)).isoformat()
        documents.append(document)
    return documents


def plant_amounts(
    documents: Sequence[dict[str, Any]], side: int, metric: str, amounts: Sequence[float]
) -> None:
    """Give one side of each night's duel another amount of a metric, in its unit."""
    for document, amount in zip(documents, amounts, strict=True):
        contender = document["contenders"][side]
        start = contender["starts"][0]
        if metric == "cold_compile_s":
            contender["cold"]["stages"] |= {"trace": 0.0, "lower": 0.0, "compile": float(amount)}
        elif metric == "program_ops":
            start["profile"]["program"]["counts"] = {"dot": int(amount)}
        elif metric in ("trace_s", "lower_s"):
            start["stages"][metric.removesuffix("_s")] = float(amount)
        elif metric == "warm_compile_s":
            start["stages"] |= {"trace": 0.0, "lower": 0.0, "compile": float(amount)}
        elif metric == "host_dispatch_ns":
            profile = start["profile"]
            share = profile["kernel_ns"] / profile["wall_ns"]
            profile["plain_ns"] = round(profile["steps"] * amount / (1 - share))
        elif metric == "latency_p95_ns":
            start["latency_ns"] = [round(amount)] * 200
        else:
            start["memory"][metric] = round(amount)


def make_evidence(
    a: str,
    b: str,
    *,
    quantity: str = "loss",
    max_relative: float | None = None,
    agrees: bool = True,
) -> dict[str, Any]:
    """A compared quantity of two contenders; by default well within, or well beyond, tolerance."""
    by_default = 1e-7 if agrees else 0.5
    return {
        "a": a,
        "b": b,
        "quantity": quantity,
        "max_relative": by_default if max_relative is None else max_relative,
        "l2_relative": 1e-8,
        "tolerance": 1e-5,
        "agrees": agrees,
    }


def make_manifest(framework: str, **changes: str) -> dict[str, str]:
    """What a side of `mlp`, trained on a CPU, reads back."""
    return {
        "device": "cpu",
        "threads": "2",
        "data_path": "device",
        "input_buffers": "4",
        "param_dtype": "float32",
        "output_dtype": "float32",
        "state_update": "in place",
        "graphs": "off",
        "autotune": "none",
        "compiled": "yes",
        "compile_mode": "jit" if framework == "jax" else "default",
        "matmul_precision": "ieee",
        "conv_precision": "none",
        "layout": "none",
        "dropout": "none",
        "drop_rates": "none",
        "matmul_seen": "fp32_ieee",
        "conv_seen": "fp32_ieee",
        "synchronisation": "one wait a block",
        "wait_policy": "PASSIVE",
        "variables": "OMP_WAIT_POLICY=PASSIVE",
        **changes,
    }


def make_profile(**changes: Any) -> dict[str, Any]:
    """Two kernels, nothing copied, nothing waited for."""
    return {
        "steps": 10,
        "plain_ns": 500_000,
        "wall_ns": 800_000,
        "kernel_ns": 400_000,
        "num_kernels": 20,
        "host_syncs": 0,
        "host_copies": 0,
        "copied_bytes": 0,
        "graph_launches": None,
        "python_calls": 12,
        "module_calls": 0,
        "grad_mode": None,
        "kernels": [
            {"name": "dot.1", "ns": 300_000, "calls": 10},
            {"name": "fusion.2", "ns": 100_000, "calls": 10},
        ],
        "program": {"hash": "d" * 64, "counts": {"dot": 1, "fusion": 1}, "bytes": 4096},
        "missing": {},
        **changes,
    }


def spool_document(spool: Path, document: dict[str, Any]) -> Path:
    """Put a document where the conductor would: `<spool>/<campaign>/<duel_run>.json`.

    Starts of no time of their own begin with their duel, whenever that is.
    """
    for start in (each for one in document["contenders"] for each in one["starts"]):
        if start["started_at"] == STARTED_AT:
            start["started_at"] = document["allocation"]["started_at"]
    path = spool / document["campaign"] / f"{document['duel_run']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def spool_ceiling(state: State) -> None:
    """Let an earlier campaign have measured this machine's CPU: 107 GFLOP/s in float32.

    For tests of real duels that are about something else: a pair without a ceiling never counts.
    """
    campaign, duel_run = "ceilings", "ce" * 8
    if (state.spool / campaign / f"{duel_run}.json").exists():
        return
    document = make_document((TORCH,), duel_run=duel_run, campaign=campaign, starts=1)
    document["method"] = METHOD
    changes = {"workload": "matmul", "case": "cpu_1024", "use_case": "op"}
    work = {"precision": "fp32_ieee", "flops_per_step": 2 * 1024**3}
    document["duel"] |= {**changes, **work}
    for block in document["contenders"][0]["starts"][0]["blocks"]:
        block["elapsed_ns"] = 20_000_000 * block["steps"]
    begun = datetime.now(UTC) - timedelta(hours=1)
    document["allocation"]["started_at"] = begun.isoformat()
    document["allocation"]["ended_at"] = (begun + timedelta(minutes=1)).isoformat()
    document["allocation"]["device"] = describe_device("cpu")
    spool_document(state.spool, document)


def _make_duel(starts: int, rounds: int) -> dict[str, Any]:
    return {
        "hash": "fedcba9876543210",
        "workload": "mlp",
        "case": "tiny",
        "use_case": "train",
        "batch": 32,
        "precision": "float32",
        "track": "default",
        "sizes": {"width": 64},
        "seed": 1,
        "starts": starts,
        "max_starts": starts + 2,
        "rounds": rounds,
        "max_rounds": rounds + 2,
        "target": 0.01,
        "budget_s": 60.0,
        "stopped_by": "budget",
        "freeze": True,
        "checkpoint": None,
        "flops_per_step": 1000,
        "least_bytes_per_step": 500,
    }


def _make_allocation() -> dict[str, Any]:
    return {
        "id": "local-1",
        "site": "local",
        "node": "node-1",
        "slurm_job_id": None,
        "slurm": None,
        "started_at": STARTED_AT,
        "ended_at": "2026-01-02T03:14:05.250+00:00",
        "device": {
            "name": "cpu",
            "kind": "cpu",
            "model": "Some CPU",
            "count": 1,
            "memory_bytes": 8_000_000_000,
            "driver": None,
            "fingerprint": "00112233445566ff",
        },
        "gpus": [],
        "host": {
            "cpu_model": "Some CPU",
            "cpus": 2,
            "memory_bytes": 8_000_000_000,
            "system": "Linux 6.1",
        },
    }


def _make_contender(racer: Racer, starts: int, rounds: int) -> dict[str, Any]:
    failure = {"stage": "build", "start": 0, "reason": "it broke", "traceback": "Traceback: ..."}
    failure |= {"cause": "exception", "xids": None}
    return {
        "name": racer.name,
        "arm": racer.arm or racer.framework,
        "role": racer.role,
        "framework": racer.framework,
        "version": racer.version,
        "environment": {
            "name": f"{racer.framework}-newest",
            "key": f"{racer.framework}-{racer.version}",
            "lock_sha256": "b" * 64,
            "python": "/environments/bin/python",
            "python_version": "3.12.3",
            "build": "cpu",
            "packages": {racer.framework: racer.version},
        },
        "settings": {"compile": True},
        "effective": {"threads": 2, "manifest": make_manifest(racer.framework)},
        "status": racer.status,
        "failure": None if racer.status == "ok" else failure,
        "cold": {"stages": dict.fromkeys(STAGES, 2.5), "cache_hits": 0},
        "starts": [_make_start(racer, start, rounds) for start in range(starts)],
    }


def _make_start(racer: Racer, start: int, rounds: int) -> dict[str, Any]:
    factor = racer.start_factors[start] if racer.start_factors else 1.0
    return {
        "index": start,
        "status": racer.status,
        "started_at": STARTED_AT,
        "caches": "warm",
        "stages": dict.fromkeys(STAGES, 0.5 + start),
        "warm_up": {"num_blocks": 3, "steady": True},
        "steps_per_block": 10,
        "clock_resolution_ns": 40,
        "compilations_in_blocks": 0,
        "blocks": [
            {
                "round": each,
                "position": each % 2,
                "steps": 10,
                # The same small wobble for all racers of a round: what pairing takes away.
                "elapsed_ns": round(10 * racer.step_ns * factor * (1 + 0.001 * each)),
                "telemetry": dict(TELEMETRY),
            }
            for each in range(rounds)
        ],
        "latency_ns": None,
        "memory": {
            "planned_bytes": None,
            "allocator_peak_bytes": None,
            "process_peak_bytes": 1_000_000 + start,
        },
        "energy": None,
        "profile": make_profile() if start == 0 else None,
        "inputs_sha256": "c" * 64,
    }


TELEMETRY = {
    "load_1m": None,
    "steal_share": 0.0,
    "foreign_cpu_share": 0.0,
    "cpu_mhz": None,
    "sm_clock_mhz": 1980.0,
    "memory_clock_mhz": None,
    "throttle_reasons": 0,
    "temperature_c": None,
    "power_mw": None,
    "foreign_processes": 0,
}
"""Of an undisturbed block."""
