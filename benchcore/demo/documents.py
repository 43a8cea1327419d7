"""Result documents of the made-up year, in the shape that the conductor writes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import combinations
from typing import Any

from benchcore.cell.result.start import STAGES
from benchcore.demo import story
from benchcore.planning.catalog import find_case, load_spec
from benchcore.planning.matrix import Plan, PlannedContender, PlannedDuel
from benchcore.protocol import METHOD, SCHEMA, DuelLimits, name_case
from benchcore.verdict.duel.physics import SENTINELS
from benchcore.workloads.settings import INJECTED_SLOWDOWN

_STEPS = 100
_SLOW_NS = 3e7
"""From here on a block has 5 steps."""
_LATENCY = [1.03 + 0.0004 * (each * 37 % 70) + 0.08 * (each % 23 == 0) for each in range(70)]
"""A synchronised step over one in a queue."""
_COMPILE_S = {"jax-jit": 9.0, "torch-compile": 31.0}
_NUM_KERNELS = {"jax-jit": 84, "torch-compile": 131, "torch-eager": 402}
_TELEMETRY = {
    "load_1m": 0.4,
    "steal_share": 0.0,
    "foreign_cpu_share": 0.0,
    "cpu_mhz": None,
    "sm_clock_mhz": 1755,
    "memory_clock_mhz": 2619,
    "throttle_reasons": 0,
    "temperature_c": 54,
    "power_mw": 510_000,
    "foreign_processes": 0,
}
_FINGERPRINT = "decade0ffacade00"
_SPREAD = {"night": 0.01, "side": 0.004, "start": 0.003, "round": 0.001}
"""Standard deviations of log times."""
_EAGER = 1.45
"""Times torch's compiled step."""


@dataclass(frozen=True)
class DemoNight:
    """One night of the year, this many days before the last one."""

    plan: Plan
    at: datetime
    days_ago: int


@dataclass(frozen=True)
class _Side:
    """One contender of a duel, and what its step costs in this night."""

    planned: PlannedContender
    framework: str
    version: str
    role: str
    step_ns: float
    case: str
    batch: int
    days_ago: int

    def scale(self, metric: str) -> float:
        return story.measure_factor(self.version, self.case, metric)


def make_document(night: DemoNight, duel: PlannedDuel, minute: int) -> dict[str, Any]:
    """The document of a duel that begins this many minutes after the night."""
    luck = random.Random(duel.duel_run)
    sides = _make_sides(night, duel, luck)
    begun = night.at + timedelta(minutes=minute)
    return {
        "schema": SCHEMA,
        "method": METHOD,
        "duel_run": duel.duel_run,
        "campaign": night.plan.campaign,
        "duel": _describe_duel(duel),
        "harness": {"version": "made up", "snapshot": "0" * 64},
        "allocation": _describe_allocation(night, begun),
        "contenders": [_make_contender(each, duel.limits, luck, begun) for each in sides],
        "equivalence": [_compare(duel, a, b, night.days_ago) for a, b in combinations(sides, 2)],
    }


@cache
def _find_work(workload: str, case: str) -> tuple[Any, int, int]:
    """The case, and the FLOPs and least bytes of its step."""
    found, spec = find_case(workload, case), load_spec(workload)
    return found, spec.flops(found), spec.least_bytes(found)


def _describe_duel(duel: PlannedDuel) -> dict[str, Any]:
    case, flops, least_bytes = _find_work(duel.workload, duel.case)
    return {
        "hash": duel.hash,
        "workload": duel.workload,
        "case": duel.case,
        "use_case": case.use_case,
        "batch": case.batch,
        "precision": case.precision,
        "track": duel.track,
        "sizes": {},
        "seed": duel.seed,
        "starts": duel.limits.starts,
        "rounds": duel.limits.rounds,
        "stopped_by": "target",
        "freeze": True,
        "checkpoint": None,
        "flops_per_step": flops,
        "least_bytes_per_step": least_bytes,
    }


def _describe_allocation(night: DemoNight, begun: datetime) -> dict[str, Any]:
    return {
        "id": "made-up",
        "site": night.plan.site,
        "node": "made-up-node",
        "slurm_job_id": None,
        "slurm": None,
        "started_at": begun.isoformat(),
        "ended_at": (begun + timedelta(seconds=55)).isoformat(),
        "device": {
            "name": "cuda",
            "kind": "gpu",
            "model": story.DEVICE,
            "count": 1,
            "memory_bytes": 85_899_345_920,
            "driver": story.find_driver(night.days_ago),
            "clock_policy": None,
            "mig": "off",
            "cpu_model": "Made-up CPU",
            "cpus": 16,
            "fingerprint": _FINGERPRINT,
        },
        "gpus": [{"uuid": "GPU-made-up", "name": story.DEVICE, "memory_bytes": 85_899_345_920}],
        "host": {
            "cpu_model": "Made-up CPU",
            "cpus": 16,
            "memory_bytes": 137_438_953_472,
            "system": "Linux (made up)",
        },
    }


def _make_sides(night: DemoNight, duel: PlannedDuel, luck: random.Random) -> list[_Side]:
    name = name_case(duel.workload, duel.case)
    of_night = luck.gauss(0, _SPREAD["night"])
    base = _base_step_ns(duel)
    lucks: dict[str, float] = {}
    sides = []
    for each in duel.contenders:
        release = night.plan.releases[each.release]
        framework = release.framework
        luck_of_side = lucks.setdefault(framework, luck.gauss(0, _SPREAD["side"]))
        log = of_night + luck_of_side + _disturb(night.days_ago, duel.workload, framework)
        slowed = int(each.settings.get(INJECTED_SLOWDOWN, 0))
        factor = story.measure_factor(release.version, name, "median_step_ns")
        sides.append(
            _Side(
                planned=each,
                framework=framework,
                version=release.version,
                role=release.role,
                step_ns=base[_strip(each.arm)] * factor * (1 + log) * (1 + slowed / 100),
                case=name,
                batch=_find_work(duel.workload, duel.case)[0].batch,
                days_ago=night.days_ago,
            )
        )
    return sides


def _base_step_ns(duel: PlannedDuel) -> dict[str, float]:
    """The time of a step by arm, with the first versions and without noise."""
    case, flops, least_bytes = _find_work(duel.workload, duel.case)
    if duel.workload in SENTINELS:
        floors = flops / story.CEILINGS.get(case.precision, 1e15)
        step_ns = max(floors, least_bytes / story.BYTES_PER_S) * 1e9
        return {"jax-jit": step_ns, "torch-eager": step_ns * 1.01, "torch-compile": step_ns}
    known = next(
        each
        for each in (*story.NIGHTLY, *story.WEEKLY)
        if (each.workload, each.case) == (duel.workload, duel.case)
    )
    jax = flops / (story.CEILINGS[case.precision] * known.share) * 1e9
    compiled = jax * known.edge
    return {"jax-jit": jax, "torch-compile": compiled, "torch-eager": compiled * _EAGER}


def _strip(arm: str) -> str:
    """The arm without its injected slow-down."""
    return arm.partition("-slowed")[0]


def _disturb(days_ago: int, workload: str, framework: str) -> float:
    return 0.09 * (framework == "torch" and (days_ago, workload) in story.OUTLIERS)


def _make_contender(
    side: _Side, limits: DuelLimits, luck: random.Random, begun: datetime
) -> dict[str, Any]:
    failed = side.framework == "jax" and (side.days_ago, side.case) in story.CRASHES
    starts = [
        _make_start(side, limits.rounds, luck, begun + timedelta(seconds=18 * number))
        for number in range(0 if failed else limits.starts)
    ]
    if limits.passes and starts:
        starts[-1] |= _run_passes(side, luck)
    for number, start in enumerate(starts):
        start |= {"index": number, "compilation": number}
        if limits.passes:
            level = side.step_ns * (1 + luck.gauss(0, _SPREAD["start"]))
            start["latency_ns"] = [round(level * each) for each in _LATENCY]
    key = f"{side.framework}-{side.version}-made-up"
    return {
        "name": side.planned.name,
        "arm": side.planned.arm,
        "role": side.role,
        "framework": side.framework,
        "version": side.version,
        "environment": {
            "name": f"{side.framework}-{side.role}",
            "key": key,
            "lock_sha256": None,
            "python": "/made-up/bin/python",
            "python_version": "3.12.11",
            "build": "made up",
            "packages": {side.framework: side.version},
        },
        "settings": side.planned.settings,
        "effective": {"manifest": _make_manifest(side)},
        "status": "crash" if failed else "ok",
        "failure": _FAILURE if failed else None,
        "cold": None,
        "warm": None if failed else {"stages": _list_stages(side, 0.18), "cache_hits": 1},
        "starts": starts,
    }


_FAILURE = {
    "stage": "compile",
    "start": 0,
    "reason": "CUDA_ERROR_ILLEGAL_ADDRESS while autotuning a fusion (made up)",
    "traceback": "Traceback (most recent call last):\n  (made up)\n"
    "XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS",
    "cause": "illegal_address",
    "xids": None,
}


def _make_manifest(side: _Side) -> dict[str, str]:
    is_eager = side.planned.arm == "torch-eager"
    return {
        "device": "cuda",
        "compiled": "no" if is_eager else "yes",
        "matmul_precision": "bf16",
        "conv_precision": "bf16",
        "param_dtype": "bfloat16",
        "wait_policy": "PASSIVE",
        "graphs": "off",
        "state_update": "in place",
        "autotune": "none",
        "layout": "NCHW",
    }


def _list_stages(side: _Side, share: float = 1.0) -> dict[str, float | None]:
    arm = _strip(side.planned.arm)
    compile_s = _COMPILE_S.get(arm, 0.0) * side.scale("cold_compile_s") * share
    parts = [each * compile_s if arm in _COMPILE_S else None for each in (0.1, 0.1, 0.8)]
    first = (1.3, 0.4) if side.framework == "jax" else (2.9, 0.2)
    seconds = (*first, 0.6, *parts, 0.05, 1.2)
    return dict(zip(STAGES, seconds, strict=True))


def _make_start(
    side: _Side, num_rounds: int, luck: random.Random, begun: datetime
) -> dict[str, Any]:
    step_ns = side.step_ns * (1 + luck.gauss(0, _SPREAD["start"]))
    steps = _STEPS if step_ns < _SLOW_NS else 5
    return {
        "status": "ok",
        "started_at": begun.isoformat(),
        "caches": "cold",
        "cache_hits": 0,
        "stages": _list_stages(side, 1 + luck.gauss(0, 0.01)),
        "warm_up": {"num_blocks": 3, "steady": True},
        "steps_per_block": steps,
        "clock_resolution_ns": 1,
        "compilations_in_blocks": 0,
        "blocks": [
            {
                "round": each,
                "position": each % 2,
                "steps": steps,
                "elapsed_ns": round(steps * step_ns * (1 + luck.gauss(0, _SPREAD["round"]))),
                "telemetry": _TELEMETRY,
            }
            for each in range(num_rounds)
        ],
        "latency_ns": None,
        "memory": _NO_MEMORY,
        "energy": None,
        "profile": None,
        "inputs_sha256": None,
    }


def _run_passes(side: _Side, luck: random.Random) -> dict[str, Any]:
    return {
        "memory": _make_memory(side),
        "energy": _make_energy(side.step_ns, luck),
        "profile": _make_profile(side, side.step_ns),
    }


_NO_MEMORY: Mapping[str, Any] = {
    "planned_bytes": None,
    "allocator_peak_bytes": None,
    "process_peak_bytes": None,
    "process_baseline_bytes": None,
}


def _make_memory(side: _Side) -> dict[str, Any]:
    per_item = 95e6 if "train" in side.case else 12e6
    is_jax = side.framework == "jax"
    peak = (4e8 + per_item * side.batch) * (1.0 if is_jax else 1.17)
    peak *= side.scale("allocator_peak_bytes")
    return {
        "planned_bytes": round(peak * 0.9) if is_jax else None,
        "allocator_peak_bytes": round(peak),
        "process_peak_bytes": round(2.4e9 if is_jax else 3.1e9),
        "process_baseline_bytes": round(9e8),
    }


def _make_energy(step_ns: float, luck: random.Random) -> dict[str, Any]:
    steps = max(1, round(2e9 / step_ns))
    gross_mj = steps * step_ns * 1e-9 * 480e3 * (1 + luck.gauss(0, 0.006))
    window_ns = round(steps * step_ns)
    return {"gross_mj": gross_mj, "idle_mw": 92e3, "window_ns": window_ns, "steps": steps}


def _make_profile(side: _Side, step_ns: float) -> dict[str, Any]:
    share = 0.94 if side.framework == "jax" else 0.86
    num_kernels = _NUM_KERNELS[_strip(side.planned.arm)]
    kernel_ns = round(10 * step_ns * share)
    return {
        "steps": 10,
        "plain_ns": round(10 * step_ns),
        "wall_ns": round(11 * step_ns),
        "kernel_ns": kernel_ns,
        "num_kernels": 10 * num_kernels,
        "host_syncs": 0,
        "host_copies": 0,
        "copied_bytes": 0,
        "python_calls": 14 if side.framework == "jax" else 900,
        "module_calls": 0,
        "grad_mode": None,
        "kernels": [
            {"name": "made_up_convolution", "ns": round(kernel_ns * 0.7), "calls": 10},
            {"name": "made_up_fusion", "ns": round(kernel_ns * 0.3), "calls": 30},
        ],
        "program": {
            "hash": f"{sum(map(ord, side.version)):064x}",
            "counts": {"fusion": num_kernels},
            "bytes": None,
        },
        "missing": {},
    }


def _compare(duel: PlannedDuel, a: _Side, b: _Side, days_ago: int) -> dict[str, Any]:
    case, suite, *_ = story.VOID.get(days_ago, ("", ""))
    differs = case == a.case and suite == "equivalence" and a.framework != b.framework
    return {
        "a": a.planned.name,
        "b": b.planned.name,
        "quantity": "loss" if "train" in duel.case else "outputs",
        "max_relative": 0.031 if differs else 0.004,
        "l2_relative": 0.002,
        "tolerance": 0.02,
        "agrees": not differs,
    }
