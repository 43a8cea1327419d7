"""Tries on a device what a night relies on, with short duels that belong to no night.

Runs on a CPU. For a GPU it was written from the documentation of NVML, CUDA and the frameworks, and
was not run on one.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchcore.cell.measure import energy, host
from benchcore.environments.build import provision
from benchcore.errors import EnvironmentBuildError
from benchcore.planning import matrix
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.snapshot import hash_inside, take_snapshot
from benchcore.planning.tracks import (
    JAX_NEWEST,
    TORCH_COMPILE,
    TORCH_EAGER,
    TORCH_REDUCE_OVERHEAD,
)
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.running.duel_process import ConductorFailedError, run_duel
from benchcore.running.duels import describe_release, find_accelerator
from benchcore.running.plans import draft_plan
from benchcore.state import State, open_state
from benchcore.verdict.duel.parity import SHIPPED, ParitySide, compare_sides
from benchcore.verdict.duel.step_profile import judge_graphs

CheckStatus = Literal["passed", "failed", "unknown"]
_EXPECTED_S = 30.0
_LIMITS = DuelLimits(starts=1, rounds=2, block_ms=200.0, warm_up_limit_s=1.0)
_TIMED_ONLY = dataclasses.replace(_LIMITS, passes=False)
_ON_CPU = (
    Match(
        workload="mlp", case="tiny_infer", arms=(JAX_NEWEST, TORCH_EAGER), expected_s=_EXPECTED_S
    ),
)
_ON_GPU = tuple(
    Match(
        workload=workload,
        case=case,
        arms=(JAX_NEWEST, torch),
        expected_s=_EXPECTED_S,
        limits=limits,
    )
    for workload, case, torch, limits in (
        ("mlp", "tiny_infer", TORCH_COMPILE, _LIMITS),
        ("mlp", "tiny_train", TORCH_REDUCE_OVERHEAD, _LIMITS),
        ("matmul", "gpu_8192_tf32", TORCH_COMPILE, _TIMED_ONLY),
        ("matmul", "gpu_8192_bf16", TORCH_COMPILE, _TIMED_ONLY),
        ("copy", "gpu_2g", TORCH_COMPILE, _TIMED_ONLY),
        ("mobilenet_v3_small", "infer_b1_tf32", TORCH_COMPILE, _TIMED_ONLY),
    )
)
"""IEEE float32 with energy, memory and a profile; a training by CUDA graphs; each kind of tensor
core; the largest array; convolutions in TF32, whose templates Inductor makes."""
_FIXES = {
    "device": "install the NVIDIA driver, request a GPU, or correct CUDA_VISIBLE_DEVICES",
    "environment": "update the driver, choose another release, or see the message above",
    "runs": "rerun it alone: deadheat run WORKLOAD --case CASE --device NAME",
    "precision": "see the precision switches in benchcore/cell/runtimes",
    "parity": "see benchcore/verdict/duel/parity.py: such a pair never counts",
    "outputs": "run `deadheat equivalence`: it compares both sides with float64",
    "graphs": "see torch's log (TORCH_LOGS=cudagraphs), which names why it skips a graph",
    "counters": "let NVML be read: in a container pass the driver's `utility` capability",
    "energy": "let the counter be read: RAPL needs root or a udev rule, a MIG instance has none",
    "same device": "set CUDA_DEVICE_ORDER=PCI_BUS_ID, and CUDA_VISIBLE_DEVICES to UUIDs",
}


@dataclass(frozen=True, kw_only=True)
class DeviceCheck:
    """One line of `deadheat verify --device`; `unknown` = the device has nothing to check."""

    check: str
    status: CheckStatus
    result: str
    fix: str = ""


def try_device(
    device: str, state: State, report: Callable[[str], None], *, python: str | None = None
) -> list[DeviceCheck]:
    """Try a device: on a GPU about three minutes, once its environments are built.

    Raises UserError for a name that no device has, or if there is no network to build with.
    """
    matrix.check_device(device)
    absent = host.absence_reason(device)
    if absent:
        return [_fail("device", absent)]
    plan = _draft(device, python)
    environments: dict[str, EnvironmentRecord | str] = {}
    checks = [_describe_device(device), _check_energy(device)]
    for request, release in plan.releases.items():
        try:
            built = provision(release, state, accelerator=find_accelerator(), report=report)
        except EnvironmentBuildError as error:
            environments[request] = str(error)
            checks.append(_fail("environment", f"{describe_release(release)}: {error}"))
        else:
            environments[request] = built
            checks.append(
                _pass("environment", f"{describe_release(release)}, {built.build}, verified")
            )
    try:
        for document in _measure(plan, environments, state, report):
            checks += conclude(document)
    except ConductorFailedError as error:
        checks.append(_fail("runs", str(error)))
    return checks


def _draft(device: str, python: str | None) -> Plan:
    matches = _ON_CPU if device == "cpu" else _ON_GPU
    profile = Profile(name="verify", matches=matches, device=device, limits=_LIMITS)
    return draft_plan(profile, site="local", campaign="verify", python=python)


def _measure(
    plan: Plan,
    environments: Mapping[str, EnvironmentRecord | str],
    state: State,
    report: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """The documents of the plan's duels, kept in no spool."""
    snapshot = take_snapshot(state.snapshots)
    with tempfile.TemporaryDirectory(prefix="deadheat-verify-") as folder:
        apart = open_state(Path(folder))
        for duel in plan.duels:
            report(f"measuring {duel.title}")
            order = matrix.make_order(
                plan,
                duel,
                environments,
                harness_version=version("deadheat"),
                snapshot=hash_inside(),
            )
            path = run_duel(order, apart, snapshot, lambda event: None)
            yield json.loads(path.read_text(encoding="utf-8"))


def conclude(document: Mapping[str, Any]) -> list[DeviceCheck]:
    """What one duel's document shows of its device."""
    duel, contenders = document["duel"], document["contenders"]
    case = f"{duel['workload']} {duel['case']}"
    checks = [check for each in contenders for check in _check_contender(each, case)]
    done = [each for each in contenders if each["status"] == "ok"]
    if document["allocation"]["device"]["kind"] == "gpu":
        checks += [_check_counters(done, case), _check_libraries(done, case)]
        checks += _check_identity(done, document["allocation"]["device"])
        checks += _check_graphs(done, case)
    if len(done) == len(contenders):
        checks += [_check_parity(done, case), _check_outputs(document["equivalence"], case)]
    return checks


def _check_contender(contender: Mapping[str, Any], case: str) -> Iterator[DeviceCheck]:
    name = f"{case}, {contender['name']}"
    if contender["status"] != "ok":
        failure = contender["failure"] or {}
        yield _fail("runs", f"{name}: {contender['status']}: {failure.get('reason', 'no reason')}")
        return
    failed = contender["effective"].get("failed_passes")
    yield _fail("runs", f"{name}: {'; '.join(failed)}") if failed else _pass("runs", name)
    canary = contender["starts"][-1]["canary"]
    if canary is not None:  # a contradiction would have been a status
        seen = f"matmul {canary['matmul_seen']}, convolution {canary['conv_seen']}"
        yield _pass("precision", f"{name}: {seen}")


def _check_counters(contenders: Sequence[Mapping[str, Any]], case: str) -> DeviceCheck:
    missing = {
        name: reason
        for each in contenders
        for start in each["starts"]
        for block in start["blocks"]
        for name, reason in block["telemetry"].get("missing", {}).items()
    }
    if missing:
        listed = "; ".join(f"{name}: {reason}" for name, reason in sorted(missing.items()))
        return _fail("counters", f"{case}: {listed}")
    return _pass("counters", f"{case}: all were sampled during blocks")


def _check_libraries(contenders: Sequence[Mapping[str, Any]], case: str) -> DeviceCheck:
    read = [
        f"{each['name']}: "
        + ", ".join(f"{key} {each['effective']['versions'].get(key)}" for key in SHIPPED)
        for each in contenders
    ]
    return DeviceCheck(
        check="libraries",
        status="passed" if read else "unknown",
        result=f"{case}: {'; '.join(read) or 'no contender succeeded'}",
    )


def _check_identity(
    contenders: Sequence[Mapping[str, Any]], device: Mapping[str, Any]
) -> Iterator[DeviceCheck]:
    """Whether a framework computes on the GPU that NVML watches: by PCI address, and by model where
    one of them is not known."""
    for each in contenders:
        kind, model = each["effective"].get("device_kind"), device["model"]
        address, watched = each["effective"].get("pci_address"), device.get("pci_address")
        if address and watched:
            same = _split_address(address) == _split_address(watched)
            text = f"{each['name']} computes on the GPU at {address}, NVML watches {watched}"
        elif kind is not None:
            same = model.startswith(kind) or kind in model
            text = f"{each['name']} computes on {kind!r}, NVML watches {model!r}"
        else:
            continue
        yield _pass("same device", text) if same else _fail("same device", text)


def _split_address(address: str) -> tuple[int, ...]:
    """Domain, bus and device: CUDA writes four digits of the domain, and NVML eight."""
    return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))


def _check_graphs(contenders: Sequence[Mapping[str, Any]], case: str) -> Iterator[DeviceCheck]:
    """Whether a profile shows the CUDA graphs that a side reports."""
    for each in contenders:
        claimed = each["effective"]["manifest"].get("graphs")
        for profile in filter(None, (start.get("profile") for start in each["starts"])):
            unlike = judge_graphs(profile, each["framework"], claimed)
            launches = profile.get("graph_launches")
            text = f"{case}, {each['name']}: {unlike or f'{claimed}, {launches} launches'}"
            yield _fail("graphs", text) if unlike else _pass("graphs", text)


def _check_parity(contenders: Sequence[Mapping[str, Any]], case: str) -> DeviceCheck:
    first, second = (
        ParitySide(
            name=each["name"],
            framework=each["framework"],
            settings=each["settings"],
            manifest=each["effective"]["manifest"],
        )
        for each in contenders[:2]
    )
    parity = compare_sides(first, second, "default")
    if parity.violations:
        return _fail("parity", f"{case}: {'; '.join(parity.violations)}")
    return _pass("parity", f"{case}: {'; '.join(parity.labels) or 'no setting differs'}")


def _check_outputs(rows: Sequence[Mapping[str, Any]], case: str) -> DeviceCheck:
    wrong = [row for row in rows if not row["agrees"]]
    if not rows:
        return DeviceCheck(check="outputs", status="unknown", result=f"{case}: not compared")
    if wrong:
        return _fail("outputs", f"{case}: {len(wrong)} of {len(rows)} differ: {wrong[0]}")
    return _pass("outputs", f"{case}: {len(rows)} agree")


def _describe_device(device: str) -> DeviceCheck:
    facts = host.describe_device(device)
    memory = facts["memory_bytes"]
    known = [facts["model"], "memory unknown" if memory is None else f"{memory / 2**30:.0f} GiB"]
    known += [f"driver {facts['driver']}"] if facts["driver"] else []
    missing = [f"{name}: {reason}" for name, reason in facts.get("missing", {}).items()]
    return _pass("device", ", ".join(known) + "".join(f"; {each}" for each in missing))


def _check_energy(device: str) -> DeviceCheck:
    """A CPU without a counter is common, and no failure."""
    reason = energy.absence_reason(device)
    if reason is None:
        return _pass("energy", "the counter can be read")
    status: CheckStatus = "unknown" if device == "cpu" else "failed"
    return DeviceCheck(check="energy", status=status, result=reason, fix=_FIXES["energy"])


def _pass(check: str, result: str) -> DeviceCheck:
    return DeviceCheck(check=check, status="passed", result=result)


def _fail(check: str, result: str) -> DeviceCheck:
    return DeviceCheck(check=check, status="failed", result=result, fix=_FIXES[check])
