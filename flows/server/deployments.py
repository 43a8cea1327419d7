"""Our deployments: the flows that a schedule, an event or a person starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.importtools import import_object

from benchcore.errors import UserError
from benchcore.planning.snapshot import hash_inside
from benchcore.running.sites import Site
from flows.measure_shard import measure_shard
from flows.server.automations import HEARTBEAT_S
from flows.server.instance import POOL
from tasks.server.apply import Pool, read_schedule
from tasks.server.prefect_file import Declared, DeclaredSchedule, read_prefect_file
from tasks.server.prefect_server import TAG
from tasks.slurm.pools import draft_pool, find_folder, make_job_variables, name_pool

NIGHT = "night"
"""The slug of the schedule that --cron sets."""


@dataclass(frozen=True, kw_only=True)
class DeployOptions:
    """The user's choices for all deployments."""

    site: Site
    profile: str
    cron: str
    timezone: str
    root: Path
    """The state folder of all runs, absolute."""


def make_pool(site: Site) -> Pool:
    """The work pool of campaigns. On this machine one runs at a time, as two would disturb each
    other; on a cluster they only wait for their shards."""
    return Pool(name=POOL, limit=1 if site.kind == "local" else 8)


def list_shard_pools(wanted: DeployOptions) -> list[WorkPoolCreate]:
    """The work pools of a Slurm site's shards: one for each of its pools."""
    return [draft_pool(wanted.site, pool, wanted.root) for pool in wanted.site.pools]


def list_deployments(wanted: DeployOptions) -> list[RunnerDeployment]:
    """All deployments. Raises UserError for an invalid schedule."""
    return [*_list_for_users(wanted), *_list_for_shards(wanted)]


def _list_for_shards(wanted: DeployOptions) -> list[RunnerDeployment]:
    """The deployments that campaigns submit their shards to."""
    folder = find_folder(wanted.site, wanted.root)
    return [
        RunnerDeployment.from_flow(
            measure_shard,
            name=name_pool(wanted.site, pool),
            version=_version(),
            description=(
                f"Measures a shard of a campaign in an allocation of pool {pool}. Campaigns on "
                f"site {wanted.site.name} start it."
            ),
            tags=[TAG, wanted.site.name],
            work_pool_name=name_pool(wanted.site, pool),
            job_variables=make_job_variables(allocation, folder),
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        for pool, allocation in wanted.site.pools.items()
    ]


def _list_for_users(wanted: DeployOptions) -> list[RunnerDeployment]:
    job = {"env": _environment(wanted.root), "working_dir": str(_working_folder(wanted))}
    shared: dict[str, Any] = {
        "version": _version(),
        "work_pool_name": POOL,
        "job_variables": job,
        "entrypoint_type": EntrypointType.MODULE_PATH,
    }
    return [
        RunnerDeployment.from_flow(
            flow,
            name=each.name,
            description=each.description,
            schedules=[_schedule(one, wanted) for one in each.schedules],
            parameters=_fill_in(flow, wanted),
            tags=[*each.tags, wanted.site.name],
            work_queue_name=each.work_pool.work_queue_name,
            concurrency_limit=each.concurrency_limit,
            **shared,
        )
        for each in read_prefect_file()
        for flow in (_load(each),)
    ]


def _load(declared: Declared) -> Flow[..., Any]:
    try:
        found = import_object(declared.entrypoint)
    except (ImportError, AttributeError, ValueError) as error:
        found = error
    if not isinstance(found, Flow):
        raise UserError(
            f"wanted a flow as the entrypoint of deployment {declared.name!r}, got "
            f"{declared.entrypoint!r}: {found!s:.200}; correct it in prefect.yaml"
        )
    return found


def _schedule(declared: DeclaredSchedule, wanted: DeployOptions) -> Schedule:
    """The declared schedule; the user chooses the night's."""
    if declared.slug == NIGHT:
        return read_schedule(wanted.cron, wanted.timezone, NIGHT)
    return read_schedule(declared.cron, declared.timezone, declared.slug)


def _version() -> str:
    return f"{version('deadheat')}+{hash_inside()[:8]}"


def _fill_in(flow: Flow[..., Any], wanted: DeployOptions) -> dict[str, Any]:
    """Profile, site and time zone, for flows that have these parameters."""
    known = {"profile": wanted.profile, "site": wanted.site.name, "timezone": wanted.timezone}
    return {name: value for name, value in known.items() if name in flow.parameters.properties}


def _environment(root: Path) -> dict[str, str]:
    """The environment of a run, which the worker's own may lack."""
    sites = os.environ.get("DEADHEAT_SITES")
    named = {"DEADHEAT_SITES": str(Path(sites).absolute())} if sites else {}
    alive = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S)}
    return {"DEADHEAT_STATE": str(root), **alive, **named}


def _working_folder(wanted: DeployOptions) -> Path:
    """An empty folder: Prefect takes the files in a run's working folder for its code."""
    folder = wanted.root / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
