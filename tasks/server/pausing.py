"""Pauses and resumes what a Prefect server starts, by Prefect's own switches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.variables import Variable

from benchcore.errors import UserError
from tasks.server.prefect_server import (
    PAGE,
    check_server,
    find_pool,
    list_our_automations,
    list_our_deployments,
)

_UNDER_WAY = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
_BEFORE = "deadheat_paused_before"
"""Prefect variable: names of what was paused already when `deadheat pause` ran."""


@dataclass(frozen=True, kw_only=True)
class PauseStatus:
    """Names of deployments, of runs that continue, and of runs that wait for `resume`."""

    paused: bool
    deployments: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]


def set_paused(paused: bool, pool: str, watching: Collection[str], shard_flow: str) -> PauseStatus:
    """Pause or resume a work pool, our deployments that start in it, and the automations `watching`
    for missing runs. Runs under way continue, with their shards. What people had paused before
    stays paused. Idempotent. Raises UserError."""
    check_server()
    with get_client(sync_client=True) as client:
        if find_pool(client, pool) is None:
            raise UserError(
                f"wanted a work pool {pool!r} to pause or resume, but this server has none; run "
                "`deadheat deploy`, or set PREFECT_API_URL to another server"
            )
        deployments = [e for e in list_our_deployments(client) if e.work_pool_name == pool]
        automations = [e for e in list_our_automations(client).values() if e.name in watching]
        # The pool is the first to pause and the last to resume: nothing starts in between.
        if paused:
            client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
            if Variable.get(_BEFORE) is None:
                before = [each.name for each in deployments if each.paused]
                before += [each.name for each in automations if not each.enabled]
                Variable.set(_BEFORE, before, overwrite=True)
        stays = set(cast(list[str], Variable.get(_BEFORE) or []))
        for each in deployments:
            if each.paused != paused and each.name not in stays:
                (client.pause_deployment if paused else client.resume_deployment)(each.id)
        for each in automations:
            if each.enabled == paused and each.name not in stays:
                (client.pause_automation if paused else client.resume_automation)(each.id)
        if not paused:
            client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
            Variable.unset(_BEFORE)
        shards = FlowFilter(name=FlowFilterName(any_=[shard_flow]))
        ours = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
        running = _list_runs(client, _UNDER_WAY, pools=ours)
        # Shards are in pools of their own, which are not paused.
        running += _list_runs(client, (*_UNDER_WAY, StateType.SCHEDULED), flows=shards)
        scheduled = _list_runs(client, (StateType.SCHEDULED,), pools=ours)
        return PauseStatus(
            paused=paused,
            deployments=tuple(sorted(each.name for each in deployments)),
            running=_format_runs(running),
            waiting=_format_runs([each for each in scheduled if not each.auto_scheduled]),
        )


def _list_runs(
    client: SyncPrefectClient,
    types: Sequence[StateType],
    *,
    flows: FlowFilter | None = None,
    pools: WorkPoolFilter | None = None,
) -> list[FlowRun]:
    in_state = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))
    return client.read_flow_runs(
        flow_filter=flows,
        work_pool_filter=pools,
        flow_run_filter=FlowRunFilter(state=in_state),
        limit=PAGE,
    )


def _format_runs(runs: Collection[FlowRun]) -> tuple[str, ...]:
    return tuple(f"{each.name} ({str(each.state_name).lower()})" for each in runs)
