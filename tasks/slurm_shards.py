"""Hands shards to a Slurm work pool as flow runs, and tells what became of them."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from benchcore import campaign as steps
from benchcore import placement
from benchcore.errors import UserError
from benchcore.placement import Shard
from benchcore.sites import Site, find_pool, load_site
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.durations import read_durations
from tasks.slurm_worker import pool_template

_PAGE = 200
_MOST_WORDS = 1000


def connect() -> SyncPrefectClient:
    """A client of the Prefect server, for as long as shards are waited for: one that has had an
    answer before asks again for about a minute while the server is away."""
    return get_client(sync_client=True)


def deploy(shard_flow: Flow[..., Any], campaign: str, root: str) -> UUID:
    """The deployment of the shards' flow to the site's work pool; both are made where missing.

    Raises UserError if the pool is of another type, or no worker serves it.
    """
    site = _find_site(campaign, root)
    pool, (_, allocation) = _name_pool(site), find_pool(site, None)
    with get_client(sync_client=True) as client:
        _ensure_pool(client, pool, pool_template(allocation, site.state or root))
        return client.create_deployment(
            flow_id=client.create_flow_from_name(shard_flow.name),
            name=pool,
            entrypoint=f"{shard_flow.fn.__module__}.{shard_flow.fn.__name__}",
            work_pool_name=pool,
            parameter_openapi_schema=parameter_schema(shard_flow).model_dump(exclude_unset=True),
            enforce_parameter_schema=True,
        )


def _ensure_pool(client: SyncPrefectClient, pool: str, template: dict[str, Any]) -> None:
    try:
        found = client.read_work_pool(pool)
    except ObjectNotFound:
        made = WorkPoolCreate(name=pool, type="slurm", base_job_template=template)
        found = client.create_work_pool(made)
    if found.type != "slurm":
        raise UserError(
            f"wanted a work pool {pool!r} of type 'slurm', got type {found.type[:100]!r}; rename "
            "that pool, or the site's"
        )
    if words := _miss_worker(client, pool):
        raise UserError(words)


def _miss_worker(client: SyncPrefectClient, pool: str) -> str | None:
    if any(worker.status == "ONLINE" for worker in client.read_workers_for_work_pool(pool)):
        return None
    return (
        f"wanted a worker that serves the work pool {pool!r}, found none; start one where "
        f"sbatch works: prefect worker start --type slurm --pool {pool}"
    )


def find_trouble(campaign: str, root: str, client: SyncPrefectClient) -> str | None:
    """Why shards that wait may wait in vain, if there is a reason that people can mend."""
    return _miss_worker(client, _name_pool(_find_site(campaign, root)))


def _name_pool(site: Site) -> str:
    return f"{site.name}-{find_pool(site, None)[0]}"


def hold_campaign(campaign: str, root: str) -> AbstractContextManager[None]:
    """For this process alone."""
    state = State(Path(root))
    return placement.hold_campaign(steps.load_campaign(state, campaign), state)


def cut_shards(campaign: str, root: str, given_up: Collection[str]) -> list[Shard]:
    """The shards that are out, and new ones for what is still missing."""
    state = State(Path(root))
    plan = steps.load_campaign(state, campaign)
    durations = read_durations(open_database(state.database_url), plan.site)
    return placement.cut_shards(plan, state, durations, given_up)


def list_open(campaign: str, root: str) -> list[Shard]:
    """The shards that are out."""
    state = State(Path(root))
    return placement.list_open(steps.load_campaign(state, campaign), state)


def hand_over(
    shards: Collection[Shard], deployment: UUID, root: str, client: SyncPrefectClient
) -> None:
    """Create a flow run for each shard that has none."""
    has_run = {shard.id for shard, _ in find_runs(shards, client)}
    for shard in shards:
        if shard.id not in has_run:
            site = _find_site(shard.campaign, root)
            _, allocation = find_pool(site, shard.pool)
            folder = site.state or root
            environment = {
                "DEADHEAT_STATE": folder,
                "DEADHEAT_SITES": os.environ.get("DEADHEAT_SITES"),
            }
            run_deployment(
                deployment,
                parameters={"campaign": shard.campaign, "shard": shard.id, "token": shard.token},
                flow_run_name=f"{shard.campaign}-{shard.id[:4]}",
                timeout=0,
                idempotency_key=_key(shard),
                job_variables={
                    **allocation.model_dump(mode="json"),
                    "folder": folder,
                    "env": {key: value for key, value in environment.items() if value},
                },
            )


def find_runs(shards: Collection[Shard], client: SyncPrefectClient) -> list[tuple[Shard, FlowRun]]:
    """The flow runs that shards have, as they are now."""
    by_key = {_key(shard): shard for shard in shards}
    keys = list(by_key)
    runs = [
        run
        for start in range(0, len(keys), _PAGE)
        for run in client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                idempotency_key=FlowRunFilterIdempotencyKey(any_=keys[start : start + _PAGE])
            ),
            limit=_PAGE,
        )
    ]
    return [(by_key[str(run.idempotency_key)], run) for run in runs]


def _key(shard: Shard) -> str:
    return f"deadheat-{shard.campaign}-{shard.id}"


def describe(run: FlowRun) -> str:
    """Where a shard's flow run is, in words; the same words as long as nothing changes."""
    job = f"Slurm job {run.infrastructure_pid}"
    assert run.state is not None
    if run.state.is_final():
        return f"{str(run.state_name).lower()}{f', {job}' if run.infrastructure_pid else ''}"
    if not run.infrastructure_pid:
        return "waits for the worker"
    return f"runs as {job}" if run.state.type is StateType.RUNNING else f"waits as {job}"


def explain_end(run: FlowRun, campaign: str, root: str) -> str:
    """Why a shard's duels may lack results: its last state's words, and the end of the job's log
    where the job was taken from it."""
    assert run.state is not None
    words = run.state.message or str(run.state_name)
    if run.state.type is StateType.COMPLETED:
        return (
            "its shard ended well, but its document did not arrive: does every node share "
            f"{root!r}?"
        )
    if run.state.type is not StateType.CRASHED or not run.infrastructure_pid:
        return words
    folder = _find_site(campaign, root).state or root
    log = Path(folder) / "slurm-jobs" / f"{run.infrastructure_pid}.log"
    try:
        tail = log.read_text(encoding="utf-8", errors="replace").strip()[-_MOST_WORDS:]
    except OSError:
        return f"{words}; it left no log {str(log)!r}: does its node share that folder?"
    return f"{words}; the end of its log: {tail}" if tail else words


def settle_shard(shard: Shard, root: str, words: str) -> dict[str, str]:
    """Write down that a shard is over; the duels that it left without a document, and why."""
    state = State(Path(root))
    plan = steps.load_campaign(state, shard.campaign)
    return placement.settle_shard(plan, state, shard, words)


def tell(campaign: str, root: str, text: str) -> None:
    """Say something to whoever follows the campaign."""
    steps.progress_log(State(Path(root)), campaign).append(event="shard", text=text)


def tell_measured(campaign: str, root: str, shards: Collection[Shard], told: set[str]) -> None:
    """Say which duels of the shards were measured since the last time; `told` remembers."""
    state = State(Path(root))
    plan = steps.load_campaign(state, campaign)
    log = steps.progress_log(state, campaign)
    for duel_run in placement.list_measured(plan, state, shards):
        if duel_run not in told:
            told.add(duel_run)
            log.append(event="duel", what="done", duel_run=duel_run)
            log.append(event="shard", text=f"{steps.find_duel(plan, duel_run).title}: measured")


def _find_site(campaign: str, root: str) -> Site:
    return load_site(steps.load_campaign(State(Path(root)), campaign).site)
