"""Builds the result document of one duel run (schemas/result-1)."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from benchcore.cell.failures.kernel_log import Xid
from benchcore.cell.failures.status import ContenderFailedError, find_cause
from benchcore.cell.result.contender import Contender, Failure
from benchcore.cell.result.duel import Dataset, Duel, Harness
from benchcore.cell.result.start import STAGES, Memory, Start
from benchcore.json_types import to_json
from benchcore.protocol import METHOD, SCHEMA, ContenderOrder, DuelOrder, Role, Track
from benchcore.workloads.contract import Spec, size_case

PRODUCTS_LATER = "products_later"
"""In `effective`, besides `products`: those of the start that no program can foresee."""


def utc_now() -> str:
    """The current time in the format of documents."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_start(index: int, compilation: int, seed: int) -> dict[str, Any]:
    """A start before its first measurement: every counter is null."""
    start = Start(
        index=index,
        status="ok",
        started_at=utc_now(),
        seed=seed,
        caches="cold" if compilation == index else "warm",
        compilation=compilation,
        stages=dict.fromkeys(STAGES),
        warm_up=None,
        steps_per_block=None,
        compilations_in_blocks=None,
        blocks=[],
        latency_ns=None,
        memory=Memory(planned_bytes=None, allocator_peak_bytes=None, process_peak_bytes=None),
        energy=None,
        inputs_sha256=None,
    )
    return to_json(start)


def record_block(start: dict[str, Any], found: Mapping[str, Any], turn: Mapping[str, Any]) -> None:
    """Add a block to a start; of an epoch also its losses and the digest of its batches."""
    start["compilations_in_blocks"] += found["compilations"]
    start["blocks"].append({**turn, **{key: found[key] for key in ("steps", "elapsed_ns")}})
    if "loss" not in found:
        return
    digests = start["inputs_sha256"] + found["sha256"]
    start["inputs_sha256"] = hashlib.sha256(digests.encode()).hexdigest()
    kept = ("wait_ns", "loss", "correct", "validation_ns", "gross_mj")
    row = {"epoch": turn["round"], **{key: found[key] for key in kept}}
    start["epochs"] = [*(start["epochs"] or ()), row]


def new_contender(order: ContenderOrder) -> dict[str, Any]:
    """A contender that has not run yet."""
    contender = Contender(
        name=order.name,
        arm=order.arm,
        role=cast(Role, order.role),  # ingest refuses others
        framework=order.framework,
        version=order.version,
        environment=order.environment,
        settings=dict(order.settings),
        effective={},
        status="ok",
        failure=None,
        starts=[],
    )
    return to_json(contender)


def add_effective(known: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Add what a start of a contender read back to what its earlier starts did. A reading of the
    manifest that differs is joined to the earlier one, so that no fair start hides an unfair one;
    products are those of the first inspected start, and of the one that was inspected later."""
    readings = dict(known.get("manifest", {}))
    for key, now in found["manifest"].items():
        before = readings.get(key, now)
        readings[key] = now if now == before else f"{before}, then {now}"
    of_products = "products" if "products" not in known else PRODUCTS_LATER
    for key, value in found.items():
        known[of_products if key == "products" else key] = value
    known["manifest"] = readings


def describe_failure(
    failed: ContenderFailedError, start: int, xids: list[Xid] | None
) -> dict[str, Any]:
    """Why a contender failed. `xids` are the GPU faults in the kernel's log since its start."""
    text = f"{failed.reason}\n{failed.traceback}"
    failure = Failure(
        stage=failed.stage,
        start=start,
        reason=failed.reason or "no reason given",
        traceback=failed.traceback,
        cause=find_cause(failed.status, text, failed.cause, xids),
    )
    return {**to_json(failure), "xids": xids}


def describe_job(order: DuelOrder) -> dict[str, Any]:
    """The Slurm job around a duel, if there is one."""
    job = order.slurm and dataclasses.asdict(order.slurm)
    return {"slurm_job_id": os.environ.get("SLURM_JOB_ID"), "slurm": job}


def describe_allocation(order: DuelOrder, started_at: str) -> dict[str, Any]:
    """Where and when a duel ran, until now. The description of the machine is added later."""
    return {
        "id": os.environ.get("SLURM_JOB_ID") or uuid.uuid4().hex,
        "site": order.site,
        "node": platform.node() or "unknown",
        **describe_job(order),
        "started_at": started_at,
        "ended_at": utc_now(),
    }


def find_order_case(order: DuelOrder, spec: Spec) -> Any:
    """The case of an order, with its dataset's batch and side, if it has one."""
    case, dataset = spec.cases[order.case], order.dataset
    return case if dataset is None else size_case(case, dataset.batch, dataset.side)


def name_epochs(case: Any, side: int | None) -> str:
    """A name that no case of a spec has, so its series is separate from that of single steps."""
    precision = "" if case.precision == "fp32_ieee" else f"_{case.precision}"
    pixels = "" if side is None else f"_{side}px"
    return f"epochs_b{case.batch}{pixels}{precision}"


_CHECKPOINT = "+"


def _name_case(order: DuelOrder, case: Any) -> str:
    """The name of the case in results. With a dataset or a checkpoint no case of a spec has that
    name, so its series is separate."""
    name = order.case if order.dataset is None else name_epochs(case, order.dataset.side)
    return (
        name if order.checkpoint is None else f"{name}{checkpoint_suffix(order.checkpoint.sha256)}"
    )


def checkpoint_suffix(checkpoint: str) -> str:
    """The suffix of a checkpoint's case. torchvision names files by the same digits."""
    return f"{_CHECKPOINT}{checkpoint[:12]}"


def spec_case(name: str) -> str:
    """A case's name without its checkpoint."""
    return name.partition(_CHECKPOINT)[0]


def describe_dataset(order: DuelOrder) -> Dataset | None:
    """The training dataset, without paths of this machine."""
    if order.dataset is None:
        return None
    names = [field.name for field in dataclasses.fields(Dataset)]
    return Dataset(**{name: getattr(order.dataset, name) for name in names})


def describe_duel(order: DuelOrder, spec: Spec) -> dict[str, Any]:
    """The duel's part of the document: its case and the analytic work of a step."""
    case, limits = find_order_case(order, spec), order.limits
    sizes = dataclasses.asdict(case)
    duel = Duel(
        hash=order.duel_hash,
        workload=order.workload,
        case=_name_case(order, case),
        dataset=describe_dataset(order),
        checkpoint=order.checkpoint and order.checkpoint.sha256,
        use_case=sizes.pop("use_case"),
        batch=sizes.pop("batch"),
        precision=sizes.pop("precision"),
        track=cast(Track, order.track),  # ingest refuses others
        sizes=sizes,
        seed=order.seed,
        starts=limits.starts,
        max_starts=limits.most_starts,
        compilations=limits.compilations,
        rounds=limits.rounds,
        max_rounds=limits.most_rounds,
        target=limits.target,
        budget_s=limits.budget_s,
        freeze=limits.freeze,
        flops_per_step=spec.flops(case),
        least_bytes_per_step=spec.least_bytes(case),
    )
    return to_json(duel)


def assemble(order: DuelOrder, **parts: Any) -> dict[str, Any]:
    """The whole document; `parts` are duel, allocation, contenders and equivalence."""
    head: Mapping[str, Any] = {
        "schema": SCHEMA,
        "method": METHOD,
        "duel_run": order.duel_run,
        "campaign": order.campaign,
        "harness": to_json(Harness(version=order.harness_version, snapshot=order.snapshot)),
    }
    return {**head, **parts}
