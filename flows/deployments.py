"""Which deployments there are: the flows that a schedule, an event or a person starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType

from benchcore.sites import Site
from benchcore.snapshot import hash_inside
from flows.automations import HEARTBEAT_S
from flows.backfill import backfill
from flows.bisection import bisect
from flows.calibrate import calibrate
from flows.comparison import compare
from flows.confirmation import confirm
from flows.nightly import nightly
from flows.publication import publish
from flows.release import release, watch_releases
from flows.up_record import POOL
from tasks.deployments import QUEUES, TAG, Pool, read_schedule

_PEOPLE, _RELEASES, _NIGHT, _BACKLOG = QUEUES


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a user asks of the deployments."""

    site: Site
    profile: str
    cron: str
    timezone: str
    root: Path
    """The state folder, absolute: every run of a deployment works there."""


def make_pool(site: Site) -> Pool:
    """Campaigns that measure on this machine go one after the other: they would disturb each other.
    On a cluster they only wait for their shards."""
    return Pool(name=POOL, limit=1 if site.kind == "local" else 8)


def list_deployments(wanted: Wanted) -> list[RunnerDeployment]:
    """All of them. Raises UserError for a schedule that there can't be."""
    job = {"env": _environment(wanted.root), "working_dir": str(_working_folder(wanted))}
    shared: dict[str, Any] = {
        "version": f"{version('deadheat')}+{hash_inside()[:8]}",
        "work_pool_name": POOL,
        "job_variables": job,
        "entrypoint_type": EntrypointType.MODULE_PATH,
    }
    return [
        RunnerDeployment.from_flow(
            each.flow,
            name=each.flow.name,
            description=each.description,
            schedules=list(each.schedules),
            parameters=_fill_in(each.flow, wanted),
            tags=[TAG, wanted.site.name],
            work_queue_name=each.queue,
            concurrency_limit=each.limit,
            **shared,
        )
        for each in _list_entries(wanted)
    ]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One deployment; its name is its flow's."""

    flow: Flow[..., Any]
    queue: str
    description: str
    schedules: tuple[Schedule, ...] = ()
    limit: int | None = 1
    """How many of its runs may go on at the same time; None = as many as the pool has places."""


def _list_entries(wanted: Wanted) -> list[_Entry]:
    """A deployment more is an entry more."""
    return [
        _Entry(
            flow=nightly,
            queue=_NIGHT,
            schedules=(read_schedule(wanted.cron, wanted.timezone, "night"),),
            description=(
                f"Every night: the duels of profile {wanted.profile} on site {wanted.site.name}, "
                "from today's versions to the dashboard. Started again on the same night, it "
                "resumes."
            ),
        ),
        _Entry(
            flow=compare,
            queue=_PEOPLE,
            limit=None,
            description=(
                "Ask which of two versions or settings is faster on one case. Choose *Custom run*, "
                "fill in the form, and find the answer among the run's artifacts."
            ),
        ),
        _Entry(
            flow=watch_releases,
            queue=_RELEASES,
            schedules=(read_schedule("17 * * * *", "UTC", "hourly"),),
            description="Every hour: is there a new JAX or PyTorch? Each is measured once.",
        ),
        _Entry(
            flow=release,
            queue=_RELEASES,
            description=(
                "Measures a release against the one before it, and both against the other "
                "framework. The watch starts it; or choose *Custom run*."
            ),
        ),
        _Entry(
            flow=confirm,
            queue=_NIGHT,
            description=(
                "Measures again what the histories make us suspect, and says which framework "
                "moved. A night that leaves suspicions open starts it; or choose *Custom run*."
            ),
        ),
        _Entry(
            flow=backfill,
            queue=_BACKLOG,
            description=(
                "Measures past versions of a framework, as many as you ask for of those that can "
                "be installed here, against each other and the other framework."
            ),
        ),
        _Entry(
            flow=bisect,
            queue=_BACKLOG,
            description=(
                "Finds which version of a framework changed a case, by measuring what lies between "
                "one before the change and one after it; and which package, if you want."
            ),
        ),
        _Entry(
            flow=calibrate,
            queue=_BACKLOG,
            description=(
                "Measures more trials whose truth is known, of one version against itself and "
                "against itself slowed down, and tells how often our own alarms err."
            ),
        ),
        _Entry(
            flow=publish,
            queue=_PEOPLE,
            description=(
                "Takes in what lies in the spool, then checks, judges and publishes a campaign "
                "again, without a name the newest. Measures nothing."
            ),
        ),
    ]


def _fill_in(flow: Flow[..., Any], wanted: Wanted) -> dict[str, Any]:
    """Profile and site, of flows that ask for them."""
    known = {"profile": wanted.profile, "site": wanted.site.name}
    return {name: value for name, value in known.items() if name in flow.parameters.properties}


def _environment(root: Path) -> dict[str, str]:
    """What a run has to know that a worker's own environment may lack."""
    sites = os.environ.get("DEADHEAT_SITES")
    named = {"DEADHEAT_SITES": str(Path(sites).absolute())} if sites else {}
    alive = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S)}
    return {"DEADHEAT_STATE": str(root), **alive, **named}


def _working_folder(wanted: Wanted) -> Path:
    """Empty, as Prefect takes whatever lies where a run begins for its code."""
    folder = wanted.root / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
