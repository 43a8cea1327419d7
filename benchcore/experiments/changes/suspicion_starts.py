"""Plan fresh starts for a suspicion, old environments against new ones, and read their results."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.cell.measure.host import describe_device
from benchcore.environments.build import is_unchanged, list_environments
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.errors import DamagedFileError, UserError
from benchcore.experiments.compare import list_differences
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import list_extras, write_extras
from benchcore.planning.tracks import Arm
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duels import store_environments
from benchcore.running.plans import load_campaign
from benchcore.running.sites import find_pool, load_site
from benchcore.state import State
from benchcore.store.metrics import find_tracked
from benchcore.store.records import ContenderRecord, DuelRecord, SuspicionRecord
from benchcore.verdict.confirmation.decide import Start
from benchcore.verdict.confirmation.machine_check import PROBES

ROUNDS = 6
"""Balanced rounds of a start: more would not reduce the differences between starts."""
_SEED = 20260701
LIKELY = re.compile(r"xla|jaxlib|cudnn|cublas|triton|nccl|plugin|cuda|torch|jax|numpy")
_FIRST = ("setting", "effective", "program", "package", "environment")


@dataclass(frozen=True, kw_only=True)
class ConfirmContender:
    """One contender of a confirmation: its cells, and its version request."""

    cells: tuple[str, ...]
    side: ContenderRecord
    request: str
    environment: EnvironmentRecord | None
    """The environment measured then; None = it is gone, or a system's Python was upgraded, and must
    be rebuilt."""


def choose_contenders(suspicion: SuspicionRecord, state: State) -> tuple[ConfirmContender, ...]:
    """Both sides in their old and new environments and settings, and the first one again as
    control."""
    compared = (suspicion.a_old, suspicion.a_new, suspicion.b_old, suspicion.b_new)
    keys = {each.environment_key for each in compared}
    found = [each for each in list_environments(state) if each.key in keys]
    known = {each.key: each for each in found if is_unchanged(each)}
    cells: list[tuple[tuple[str, ...], ContenderRecord]] = []
    for before, after, old, new in (
        ("a_old", "a_new", suspicion.a_old, suspicion.a_new),
        ("b_old", "b_new", suspicion.b_old, suspicion.b_new),
    ):
        if (old.environment_key, old.settings) == (new.environment_key, new.settings):
            cells.append(((before, after), new))
        else:
            cells += [((before,), old), ((after,), new)]
    cells.append((("control",), suspicion.a_old))
    requests: dict[str, str] = {}
    contenders = []
    for of_cells, side in cells:
        record = known.get(side.environment_key)
        request = _find_request(side, record, requests)
        requests[request] = side.environment_key
        contenders.append(
            ConfirmContender(cells=of_cells, side=side, request=request, environment=record)
        )
    return tuple(contenders)


def _find_request(
    side: ContenderRecord, record: EnvironmentRecord | None, taken: Mapping[str, str]
) -> str:
    """The version request of a side; two environments of the same version differ only in their
    interpreters."""
    request = f"{side.framework}{write_extras(side.arm)}=={side.version}"
    if taken.get(request, side.environment_key) == side.environment_key:
        return request
    if record is None:
        raise UserError(
            f"wanted two environments of {request}, but {side.environment_key!r} of {side.name!r} "
            "was removed or upgraded and can't be rebuilt exactly, so this suspicion can't be "
            "confirmed; wait for more nights, and run `deadheat prune` with a larger --keep-nights "
            "from now on"
        )
    return f"{side.framework}@system:{record.python}"


def draft_starts(
    suspicion: SuspicionRecord,
    contenders: Sequence[ConfirmContender],
    profile: Profile,
    starts: range,
    *,
    site: str = "local",
) -> Plan:
    """The plan of some starts, each a separate duel with its own seed, and on a Slurm site in its
    own allocation. Uses the limits of `profile`.

    Raises UserError, also for a device other than the suspicion's.
    """
    if load_site(site).kind == "local":
        _check_device(suspicion)
    match = Match(
        workload=suspicion.key.workload,
        case=spec_case(suspicion.key.case_name),
        track=suspicion.key.track,
        arms=tuple(
            Arm(name=each.side.arm, request=each.request, settings=each.side.settings)
            for each in contenders
        ),
        expected_s=20.0 * len(contenders),
        limits=dataclasses.replace(
            profile.limits.exactly(starts=1, rounds=ROUNDS),
            budget_s=300.0,
            passes=find_tracked(suspicion.key.metric).of_pass,
            probe=True,
        ),
        checkpoint=suspicion.key.checkpoint,
    )
    releases = {each.request: _release(each) for each in contenders}
    attempt = suspicion.attempt and f"-{suspicion.attempt}"
    name = f"confirm-{suspicion.id}-{suspicion.trigger}{attempt}-{starts.stop}"
    plans = [
        make_plan(
            dataclasses.replace(
                profile,
                name="confirm",
                matches=(match,),
                device=suspicion.device,
                seed=_SEED + number,
            ),
            releases,
            campaign=name,
            site=load_site(site).name,
        )
        for number in starts
    ]
    duels = tuple(plan.duels[0] for plan in plans)
    return dataclasses.replace(plans[0], duels=duels, separate_nodes=True)


def _check_device(suspicion: SuspicionRecord) -> None:
    here = describe_device(suspicion.device)
    if here["fingerprint"] != suspicion.key.device_fingerprint:
        raise UserError(
            f"wanted the device of suspicion {suspicion.id}, "
            f"{suspicion.key.device_fingerprint} ({suspicion.device_model}), got "
            f"{here['fingerprint']} ({here['model']}); confirm it on a machine like that one"
        )


def _release(contender: ConfirmContender) -> Release:
    side, record = contender.side, contender.environment
    if record is None:
        found = resolve(
            parse_request(contender.request),
            find_interpreters(),
            python=_minor(side.python_version),
        )
        note = f"the environment of {side.name} is gone: rebuilt, so packages may differ"
        return dataclasses.replace(found, notes=(*found.notes, note))
    return Release(
        framework=side.framework,  # type: ignore[arg-type]
        version=side.version,
        role="pinned",
        python=Path(record.python),
        python_version=record.python_version,
        extras=tuple(list_extras(side.arm)),
    )


def choose_pool(plan: Plan, suspicion: SuspicionRecord, state: State) -> Plan:
    """The plan in the pool of the night that showed the suspicion, whose nodes have its device; in
    the site's default pool if that night ran on another site, or its plan or pool is gone."""
    try:
        night = load_campaign(state, suspicion.campaign)
        if night.pool is None or night.site != plan.site:
            return plan
        pool, _ = find_pool(load_site(plan.site), night.pool)
    except (UserError, DamagedFileError):
        return plan
    return dataclasses.replace(plan, pool=pool)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def reuse_environments(plan: Plan, contenders: Sequence[ConfirmContender], state: State) -> None:
    """Give the campaign the environments that were measured then, if they exist."""
    known = {each.request: each.environment for each in contenders if each.environment is not None}
    store_environments(plan, known, state)


def read_starts(
    plan: Plan,
    suspicion: SuspicionRecord,
    contenders: Sequence[ConfirmContender],
    records: Sequence[DuelRecord],
    documents: Sequence[Mapping[str, Any]],
    values: Mapping[tuple[str, str], Mapping[int, float]] | None = None,
) -> tuple[list[Start], list[str]]:
    """The starts that count, with the readings of the machine's probe, and why others don't: one on
    another device, which a Slurm site can allocate, is not a start of this suspicion.

    `documents` are the results of the records, which have no probe readings. `values` are the
    amounts of the suspicion's metric by duel run and contender; None = it is step time.
    """
    of_document = {document["duel_run"]: document for document in documents}
    of_run = {record.duel_run: record for record in records}
    starts, lost = list[Start](), list[str]()
    for duel in plan.duels:
        record = of_run.get(duel.duel_run)
        if record is None:
            lost.append("a start has no result")
            continue
        names = [each.name for each in duel.contenders]
        document = of_document.get(duel.duel_run, {})
        wrong = list(_differ_in_device(suspicion, document))
        wrong += [each.reason for each in record.exclusions if each.names <= set(names)]
        rounds = record.rounds
        if values is not None:
            rounds = {name: values.get((record.duel_run, name), {}) for name in names}
            wrong += [f"{name} was not measured" for name in names if not rounds[name]]
        if wrong:
            lost.append(wrong[0])
        else:
            cells = _read_start(rounds, dict(zip(names, contenders, strict=True)))
            starts.append({**cells, **_read_probe(document.get("probe") or {})})
    return starts, lost


def _differ_in_device(suspicion: SuspicionRecord, document: Mapping[str, Any]) -> Iterator[str]:
    device = document["allocation"]["device"] if document else {}
    if document and device["fingerprint"] != suspicion.key.device_fingerprint:
        yield (
            f"measured on another device, {device['fingerprint']} ({device['model']}), not on "
            f"{suspicion.key.device_fingerprint} ({suspicion.device_model})"
        )


def _read_probe(probe: Mapping[str, Any]) -> Start:
    """Each start is a separate duel, so it numbers its rounds separately."""
    rows = probe.get("rows", ())
    return {
        name: {row["round"]: row[f"{name}_ns"] for row in rows if row[f"{name}_ns"]}
        for name in PROBES
    }


def list_probe_failures(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the machine's probe failed, for each start in which it did."""
    probes = [document.get("probe") or {} for document in documents]
    return [each["failure"] for each in probes if each.get("failure")]


def _read_start(
    rounds: Mapping[str, Mapping[int, float]], contenders: Mapping[str, ConfirmContender]
) -> Start:
    return {
        cell: rounds[name] for name, contender in contenders.items() for cell in contender.cells
    }


def list_candidates(
    contenders: Sequence[ConfirmContender], document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The differences between each side's old and new environment, the likeliest cause first:
    changed settings and defaults, the program, then packages."""
    sides = {
        cell: document["contenders"][position]
        for position, contender in enumerate(contenders)
        for cell in contender.cells
    }
    found = [{"side": side, **each} for side in ("a", "b") for each in _differ(sides, side)]
    return sorted(found, key=_unlikely)


def _differ(sides: Mapping[str, Any], side: str) -> Iterator[dict[str, Any]]:
    old, new = sides[f"{side}_old"], sides[f"{side}_new"]
    for each in list_differences(old, new) if old is not new else ():
        yield {"kind": each["kind"], "name": each["name"], "old": each["a"], "new": each["b"]}


def _unlikely(row: Mapping[str, Any]) -> tuple[int, bool, str]:
    return _FIRST.index(row["kind"]), not LIKELY.search(row["name"]), row["name"]
