"""Makes a Prefect server's deployments what they are to be: all of them, or none is touched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    WorkPoolCreate,
    WorkPoolUpdate,
)
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import (
    ObjectAlreadyExists,
    ObjectNotFound,
    PrefectException,
    PrefectHTTPStatusError,
)
from prefect.schedules import Cron, Schedule
from prefect.states import Crashed

from benchcore.alerts import find_webhook
from benchcore.errors import UserError
from benchcore.preflight import probe_prefect_api
from tasks import automations as rules
from tasks import work_pools
from tasks.automations import TAG, Automations, Targets

QUEUES = ("people", "releases", "night", "backlog")
"""Of the pool, the first served first: a person who waits goes before the night, and what can wait
for days after it."""
_PAGE = 200
_KEPT = (
    *("flow_id", "name", "version", "description", "tags", "parameters", "job_variables"),
    *("work_pool_name", "work_queue_name", "path", "entrypoint", "pull_steps", "paused"),
    *("parameter_openapi_schema", "enforce_parameter_schema", "concurrency_options"),
)
_REFUSED = (PrefectException, httpx.HTTPError, RuntimeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The work pool of processes that campaigns are run from; `limit` runs at the same time."""

    name: str
    limit: int


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """Names of what there is now, and of what was taken away, as nothing asks for it any more."""

    present: tuple[str, ...]
    removed: tuple[str, ...]
    told: bool
    """Whether there is a webhook that nights are told to."""


def read_schedule(cron: str, timezone: str, slug: str) -> Schedule:
    """A cron schedule as Prefect reads it. Raises UserError."""
    from prefect.client.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron, timezone=timezone)
        if len(cron.split()) != 5:  # croniter would take seconds, too: a night every second
            raise ValueError(cron)
        return Cron(cron, timezone=timezone, slug=slug)
    except ValueError as error:
        raise UserError(
            f"wanted five fields of cron and a time zone's name, got {cron[:100]!r} and "
            f"{timezone[:100]!r}; write for example --cron '0 2 * * *' --timezone Europe/Berlin"
        ) from error


def deploy(
    wanted: Sequence[RunnerDeployment],
    pool: Pool,
    automations: Automations = lambda targets: (),
    shard_pools: Sequence[WorkPoolCreate] = (),
) -> Deployed:
    """Make the deployments, work pools and automations of the server what is wanted: what is new is
    made, what is there is changed, and what bears our tag and is not wanted is removed, but for
    work pools. What somebody paused stays paused.

    Raises UserError, and everything is as it was, if the server can't be asked or refuses one.
    """
    check_server()
    find_webhook()
    with get_client(sync_client=True) as client:
        ours, kept = list_ours(client), rules.remember(client)
        keys = {_key(client, each): each for each in wanted}
        before = {**_find_namesakes(client, keys), **ours}
        pools = {
            name: work_pools.find_pool(client, name)
            for name in (pool.name, *(each.name for each in shard_pools))
        }
        old_pool = pools[pool.name]
        is_paused = old_pool is not None and old_pool.is_paused
        ids: dict[str, UUID] = {}
        reached = ""
        try:
            for each in shard_pools:
                reached = each.name
                work_pools.ensure_pool(client, each)
            reached = pool.name
            _ensure_pool(client, pool)
            for key, each in keys.items():
                reached = each.full_name
                holds_back = is_paused and each.work_pool_name == pool.name
                _keep_paused(each, before.get(key), holds_back)
                made = each.apply()
                assert isinstance(made, UUID)
                ids[reached] = made
            reached = "automations"
            targets = Targets(deployments=ids, webhook=rules.keep_webhook(), paused=is_paused)
            left_over = rules.reconcile(client, automations(targets), kept)
        except BaseException as error:
            _undo(client, before, pools)
            rules.restore(client, kept)
            if not isinstance(error, _REFUSED):
                raise
            raise UserError(
                f"wanted {len(wanted)} deployments, but Prefect refused {reached!r}: "
                f"{_explain(error)}; nothing was changed"
            ) from error
        orphans = [ours[key] for key in ours.keys() - keys.keys()]
        for orphan in orphans:
            client.delete_deployment(orphan.id)
        rules.remove(client, left_over, kept)
        return Deployed(
            present=tuple(each.full_name for each in wanted),
            removed=tuple(sorted([*(each.name for each in orphans), *left_over])),
            told=targets.webhook is not None,
        )


def end_orphans(pool: str) -> None:
    """Runs of a pool that no worker is left to end are over: they would hold its places for ever.
    Only for a pool whose workers are known to be gone."""
    under_way = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=under_way))
            ),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            limit=_PAGE,
        )
        for run in runs:
            words = "its worker was stopped; started again, it resumes"
            client.set_flow_run_state(run.id, Crashed(message=words), force=True)


def has_worker(pool: str) -> bool:
    """Whether a worker serves a pool."""
    with get_client(sync_client=True) as client:
        return work_pools.is_served(client, pool)


def check_server() -> None:
    """Raises UserError unless PREFECT_API_URL names a server that answers, and lets us in."""
    cure = "start one (`deadheat up`, or `prefect server start`) and name it"
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        raise UserError(f"wanted a Prefect server, got no PREFECT_API_URL; {cure}")
    api = probe_prefect_api(url)
    if not api.usable:
        raise UserError(f"wanted a Prefect server, but {api.detail}; {cure}")
    try:
        with get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()
            client.read_work_pools(limit=1)
    except PrefectHTTPStatusError as error:
        if error.response.status_code in (401, 403):
            raise UserError(
                "wanted to be let in by the Prefect server, which refused; set "
                "PREFECT_API_AUTH_STRING to what the server was started with"
            ) from error
        raise UserError(f"wanted a Prefect server, but {_explain(error)}; {cure}") from error
    except _REFUSED as error:
        raise UserError(
            f"wanted a Prefect server of our own version, but {_explain(error)}; {cure}"
        ) from error


def list_ours(client: SyncPrefectClient) -> dict[tuple[str, str], DeploymentResponse]:
    """What bears our tag, by its flow's id and its name."""
    tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    found: list[DeploymentResponse] = []
    page: list[DeploymentResponse] | None = None
    while page is None or len(page) == _PAGE:
        page = client.read_deployments(deployment_filter=tagged, limit=_PAGE, offset=len(found))
        found += page
    return {(str(each.flow_id), each.name): each for each in found}


def _key(client: SyncPrefectClient, wanted: RunnerDeployment) -> tuple[str, str]:
    return str(client.create_flow_from_name(str(wanted.flow_name))), wanted.name


def find_deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """A deployment by its full name, if it is there."""
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _find_namesakes(
    client: SyncPrefectClient, wanted: Mapping[tuple[str, str], RunnerDeployment]
) -> dict[tuple[str, str], DeploymentResponse]:
    """What bears a wanted name, our tag or not: a campaign made it, say."""
    found = {key: find_deployment(client, each.full_name) for key, each in wanted.items()}
    return {key: each for key, each in found.items() if each is not None}


def _ensure_pool(client: SyncPrefectClient, pool: Pool) -> None:
    """The pool and its queues, made where missing."""
    work_pools.ensure_pool(client, WorkPoolCreate(name=pool.name, type="process"))
    client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=pool.limit))
    for priority, name in enumerate(QUEUES, start=1):
        try:
            client.create_work_queue(name=name, work_pool_name=pool.name, priority=priority)
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(name, work_pool_name=pool.name)
            client.request(
                "PATCH",
                "/work_queues/{id}",
                path_params={"id": queue.id},
                json={"priority": priority},
            )


def _keep_paused(
    wanted: RunnerDeployment, old: DeploymentResponse | None, all_paused: bool
) -> None:
    """What people paused, a deployment does not set going again."""
    if old is None:
        wanted.paused = all_paused
        return
    wanted.paused = old.paused
    paused = {each.slug for each in old.schedules if not each.active}
    for schedule in wanted.schedules or ():
        if schedule.slug in paused:
            schedule.active = False


def _undo(
    client: SyncPrefectClient,
    before: Mapping[tuple[str, str], DeploymentResponse],
    pools: Mapping[str, WorkPool | None],
) -> None:
    """Deployments and work pools as they were; a pool that was not there is None."""
    for key, made in list_ours(client).items():
        if key not in before:
            client.delete_deployment(made.id)
    for old in before.values():
        fields: dict[str, Any] = {name: getattr(old, name) for name in _KEPT}
        limit = old.global_concurrency_limit
        client.create_deployment(
            **fields,
            concurrency_limit=limit.limit if limit else None,
            schedules=[
                DeploymentScheduleCreate(
                    schedule=each.schedule,
                    active=each.active,
                    parameters=each.parameters,
                    slug=each.slug,
                )
                for each in old.schedules
            ],
        )
    for name, old in pools.items():
        if old is not None:
            client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=old.concurrency_limit))
        elif work_pools.find_pool(client, name):
            client.delete_work_pool(name)


def _explain(error: BaseException) -> str:
    """What the server said, in one line."""
    words = " ".join(str(error).split())
    told = re.search(r"""'msg': (["'])(.*?)\1, 'input'""", words)
    return (told[2] if told else words)[:600]
