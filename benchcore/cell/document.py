"""The result document of one duel run, put together from what was seen (schemas/result-1)."""

from __future__ import annotations

import dataclasses
import os
import platform
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from benchcore.cell.causes import Xid, find_cause
from benchcore.cell.process import ContenderFailedError
from benchcore.protocol import METHOD, SCHEMA, ContenderOrder, DuelOrder

STAGES = ("import", "init", "build", "trace", "lower", "compile", "first_run", "warm_up")


def utc_now() -> str:
    """This moment, as documents write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_start(index: int) -> dict[str, Any]:
    """A start in which nothing has been seen yet: every counter is null."""
    return {
        "index": index,
        "status": "ok",
        "started_at": utc_now(),
        "caches": "warm",
        "cache_hits": None,
        "stages": dict.fromkeys(STAGES),
        "warm_up": None,
        "steps_per_block": None,
        "clock_resolution_ns": None,
        "compilations_in_blocks": None,
        "blocks": [],
        "latency_ns": None,
        "enqueued_ns": None,
        "memory": {
            "planned_bytes": None,
            "allocator_peak_bytes": None,
            "process_peak_bytes": None,
            "process_baseline_bytes": None,
        },
        "energy": None,
        "profile": None,
        "inputs_sha256": None,
        "canary": None,
        "epochs": None,
    }


def new_contender(order: ContenderOrder) -> dict[str, Any]:
    """A contender that has not run yet."""
    return {
        **{key: getattr(order, key) for key in ("name", "arm", "role", "framework", "version")},
        "environment": dataclasses.asdict(order.environment),
        "settings": dict(order.settings),
        "effective": {},
        "status": "ok",
        "failure": None,
        "ladder": None,
        "cold": None,
        "starts": [],
    }


def describe_failure(
    failed: ContenderFailedError, start: int, xids: list[Xid] | None
) -> dict[str, Any]:
    """Why a contender went no further. `xids` is what the kernel logged of the GPU meanwhile."""
    text = f"{failed.reason}\n{failed.traceback}"
    return {
        "stage": failed.stage,
        "start": start,
        "reason": failed.reason or "no reason given",
        "traceback": failed.traceback,
        "cause": find_cause(failed.status, text, failed.cause, xids),
        "xids": xids,
    }


def describe_job(order: DuelOrder) -> dict[str, Any]:
    """The Slurm job around a duel, if there is one."""
    job = order.slurm and dataclasses.asdict(order.slurm)
    return {"slurm_job_id": os.environ.get("SLURM_JOB_ID"), "slurm": job}


def describe_allocation(order: DuelOrder, started_at: str) -> dict[str, Any]:
    """Where and when a duel ran; over now. What the machine is, is added to it."""
    return {
        "id": os.environ.get("SLURM_JOB_ID") or uuid.uuid4().hex,
        "site": order.site,
        "node": platform.node() or "unknown",
        **describe_job(order),
        "started_at": started_at,
        "ended_at": utc_now(),
    }


def find_case(order: DuelOrder, spec: Any) -> Any:
    """The case of an order; with a dataset, of its batch and side."""
    case, dataset = spec.CASES[order.case], order.dataset
    return case if dataset is None else size_case(case, dataset.batch, dataset.side)


def size_case(case: Any, batch: int, side: int) -> Any:
    """A training case of another batch and side."""
    return dataclasses.replace(case, batch=batch, side=side)


def name_epochs(case: Any) -> str:
    """No case of a spec has such a name: its series are not mixed with those of single steps."""
    precision = "" if case.precision == "fp32_ieee" else f"_{case.precision}"
    return f"epochs_b{case.batch}_{case.side}px{precision}"


_CHECKPOINT = "+"


def name_case(order: DuelOrder, case: Any) -> str:
    """What a result calls its case. With a dataset or a checkpoint it is a name that no case of a
    spec has, so that no series mixes it with others."""
    name = order.case if order.dataset is None else name_epochs(case)
    return name if order.checkpoint is None else f"{name}{end_case(order.checkpoint.sha256)}"


def end_case(checkpoint: str) -> str:
    """How the name of a checkpoint's case ends: torchvision names files by the same digits."""
    return f"{_CHECKPOINT}{checkpoint[:12]}"


def spec_case(name: str) -> str:
    """A case's name without its checkpoint."""
    return name.partition(_CHECKPOINT)[0]


def describe_dataset(order: DuelOrder) -> dict[str, Any] | None:
    """What was trained on and how it came, without a path of this machine."""
    if order.dataset is None:
        return None
    kept = ("name", "sha256", "num_classes", "num_train", "num_val", "mode", "workers")
    return {key: getattr(order.dataset, key) for key in kept}


def describe_duel(order: DuelOrder, spec: Any) -> dict[str, Any]:
    """The duel's own part: its case and the analytic work of a step."""
    case = find_case(order, spec)
    fields = dataclasses.asdict(case)
    named = {key: fields.pop(key) for key in ("use_case", "batch", "precision")}
    return {
        "hash": order.duel_hash,
        "workload": order.workload,
        "case": name_case(order, case),
        "dataset": describe_dataset(order),
        "checkpoint": order.checkpoint and order.checkpoint.sha256,
        **named,
        "track": order.track,
        "sizes": fields,
        "seed": order.seed,
        "starts": order.starts,
        "max_starts": order.max_starts,
        "rounds": order.rounds,
        "max_rounds": order.max_rounds,
        "target": order.target,
        "budget_s": order.budget_s,
        "freeze": order.freeze,
        "flops_per_step": spec.flops(case),
        "least_bytes_per_step": spec.least_bytes(case),
    }


def assemble(order: DuelOrder, **parts: Any) -> dict[str, Any]:
    """The whole document; `parts` are duel, allocation, contenders and equivalence."""
    head: Mapping[str, Any] = {
        "schema": SCHEMA,
        "method": METHOD,
        "duel_run": order.duel_run,
        "campaign": order.campaign,
        "harness": {"version": order.harness_version, "snapshot": order.snapshot},
    }
    return {**head, **parts}
