"""Provisions the environments of a planned campaign and measures its duels; both resume."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

from benchcore.cell.measure import gpu
from benchcore.environments.build import (
    Accelerator,
    has_extras_of,
    is_whole,
    provision,
    read_record,
)
from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError
from benchcore.planning import checkpoints, matrix
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import EnvironmentRecord, SlurmJob, write_json
from benchcore.running.duel_process import result_path, run_duel
from benchcore.running.plans import campaign_folder, progress_log
from benchcore.running.progress import ProgressLog
from benchcore.running.sites import load_site
from benchcore.state import State


def provision_release(
    plan: Plan, request: str, state: State, report: Callable[[str], None]
) -> EnvironmentRecord:
    """The environment of one of the plan's releases; a campaign keeps its first one, unless its
    name was used for another release before.

    Raises EnvironmentBuildError. Its message is stored: it becomes the contenders' reason.
    """
    stored, failure = _environment_paths(plan, request, state)
    release = plan.releases[request]
    record = read_record(stored)
    if record is not None and _fits(record, release) and is_whole(record):
        failure.unlink(missing_ok=True)
        return record
    try:
        record = provision(
            release,
            state,
            accelerator=load_site(plan.site).accelerator or find_accelerator(),
            report=report,
        )
    except EnvironmentBuildError as error:
        write_json(failure, {"reason": str(error), "release": _describe(request, release)})
        raise
    failure.unlink(missing_ok=True)
    write_json(stored, dataclasses.asdict(record))
    return record


def store_environments(plan: Plan, records: Mapping[str, EnvironmentRecord], state: State) -> None:
    """Make a campaign use these built environments, by version request."""
    for request, record in records.items():
        write_json(_environment_paths(plan, request, state)[0], dataclasses.asdict(record))


def load_environment(plan: Plan, request: str, state: State) -> EnvironmentRecord | str:
    """The environment that `provision_release` stored, or the reason why there is none."""
    _, failure = _environment_paths(plan, request, state)
    of = _describe(request, plan.releases[request])
    if (reason := _read_reason(failure, of)) is not None:
        return reason
    try:
        return provision_release(plan, request, state, lambda text: None)
    except EnvironmentBuildError as error:
        return str(error)


def _fits(record: EnvironmentRecord, release: Release) -> bool:
    """Whether an environment is one of this release."""
    if record.python_version != release.python_version or not has_extras_of(record, release):
        return False
    if release.framework == "stdlib":
        return True
    if release.role == "system" and record.python != str(release.python):
        return False
    found = record.packages.get(release.framework)
    return found is not None and Version(found).public == Version(release.version).public


def _describe(request: str, release: Release) -> str:
    """What a stored failure belongs to."""
    return f"{request}: {describe_release(release)}"


def _read_reason(failure: Path, of: str) -> str | None:
    """None if there is no such file, it belongs to another release, or a crash damaged it: then the
    build is tried again."""
    try:
        document = json.loads(failure.read_text(encoding="utf-8"))
        return str(document["reason"]) if document.get("release", of) == of else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _environment_paths(plan: Plan, request: str, state: State) -> tuple[Path, Path]:
    """The files of a request's environment and of its failure; numbered, as a request may contain a
    path."""
    folder = campaign_folder(state, plan.campaign) / "environments"
    folder.mkdir(exist_ok=True)
    number = list(plan.releases).index(request)
    return folder / f"{number}.json", folder / f"{number}.failure.json"


def find_accelerator() -> Accelerator:
    """`cuda` where NVML shows a GPU, else `cpu`."""
    usable, _ = gpu.survey()
    return "cuda" if usable else "cpu"


def find_duel(plan: Plan, duel_run: str) -> PlannedDuel:
    """The duel of the plan with this id."""
    return next(duel for duel in plan.duels if duel.duel_run == duel_run)


def is_measured(state: State, plan: Plan, duel: PlannedDuel) -> bool:
    """Whether the spool has the duel's document."""
    return result_path(state, plan.campaign, duel.duel_run).exists()


def measure_duel(
    plan: Plan,
    duel: PlannedDuel,
    state: State,
    log: ProgressLog | None = None,
    *,
    slurm: SlurmJob | None = None,
    ends_at: float | None = None,
) -> Path:
    """Measure one duel, unless its document exists; returns its path in the spool.

    Events go to the campaign's log unless `log` is given. `slurm` is the job around it. `ends_at`
    (seconds since the epoch) is its deadline. Raises as `run_duel` does.
    """
    log = log or progress_log(state, plan.campaign)
    path = result_path(state, plan.campaign, duel.duel_run)
    log.append(event="duel", what="resumed" if path.exists() else "begun", duel_run=duel.duel_run)
    if path.exists():
        log.append(event="duel", what="done", duel_run=duel.duel_run)
        return path
    snapshot = take_snapshot(state.snapshots)
    releases = dict.fromkeys(each.release for each in duel.contenders)
    order = matrix.make_order(
        plan,
        duel,
        {each: load_environment(plan, each, state) for each in releases},
        harness_version=version("deadheat"),
        snapshot=snapshot.name,
        weights=checkpoints.find_weights(state, duel.checkpoint) if duel.checkpoint else None,
    )
    order = dataclasses.replace(order, slurm=slurm)
    path = run_duel(
        order,
        state,
        snapshot,
        lambda event: log.append(**{**event, "duel_run": duel.duel_run}),
        ends_at=ends_at,
    )
    log.append(event="duel", what="done", duel_run=duel.duel_run)
    return path


def describe_release(release: Release) -> str:
    """A release in one line."""
    return f"{release.framework} {release.version} on Python {release.python_version}"
