"""Holds everything back that a server would start, and lets it go again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
from prefect.exceptions import ObjectNotFound

from benchcore.errors import UserError
from tasks import automations
from tasks.deployments import check_server, list_ours

_PAGE = 200
_UNDER_WAY = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


@dataclass(frozen=True, kw_only=True)
class Stand:
    """What a server holds back now; `running` goes on, `waiting` begins once it may. Names."""

    paused: bool
    deployments: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]


def set_paused(paused: bool, pool: str, watching: Collection[str], shard_flow: str) -> Stand:
    """Pause or resume all deployments of ours that start in `pool`, the pool, and the automations
    `watching` for what does not happen. What is under way goes on, with its shards. Again, it
    changes nothing. Raises UserError."""
    check_server()
    with get_client(sync_client=True) as client:
        _check_pool(client, pool)
        ours = [each for each in list_ours(client).values() if each.work_pool_name == pool]
        # The pool is first to close and last to open: nothing begins in between.
        if paused:
            client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
        for each in ours:
            if each.paused != paused:
                turn = client.pause_deployment if paused else client.resume_deployment
                turn(each.id)
        for name, each in automations.list_ours(client).items():
            if name in watching and each.enabled == paused:
                turn = client.pause_automation if paused else client.resume_automation
                turn(each.id)
        if not paused:
            client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
        names = tuple(sorted(each.name for each in ours))
        return Stand(
            paused=paused,
            deployments=names,
            running=_name(_list_runs(client, pool, _UNDER_WAY) + _list_shards(client, shard_flow)),
            waiting=_name(_list_asked_for(client, pool)),
        )


def _check_pool(client: SyncPrefectClient, pool: str) -> None:
    try:
        client.read_work_pool(pool)
    except ObjectNotFound as error:
        raise UserError(
            f"wanted a work pool {pool!r} to hold back, but this server has none; `deadheat "
            "deploy` makes it, or PREFECT_API_URL names another server"
        ) from error


def _list_runs(client: SyncPrefectClient, pool: str, types: Collection[StateType]) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=_in_state(types),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        limit=_PAGE,
    )


def _list_shards(client: SyncPrefectClient, shard_flow: str) -> list[FlowRun]:
    """Of campaigns on Slurm sites: in pools of their own, which are not held back."""
    return client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=[shard_flow])),
        flow_run_filter=_in_state((*_UNDER_WAY, StateType.SCHEDULED)),
        limit=_PAGE,
    )


def _list_asked_for(client: SyncPrefectClient, pool: str) -> list[FlowRun]:
    """Not those that a schedule has in store."""
    waiting = _list_runs(client, pool, (StateType.SCHEDULED,))
    return [each for each in waiting if not each.auto_scheduled]


def _in_state(types: Collection[StateType]) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types))))


def _name(runs: Collection[FlowRun]) -> tuple[str, ...]:
    return tuple(f"{each.name} ({str(each.state_name).lower()})" for each in runs)
