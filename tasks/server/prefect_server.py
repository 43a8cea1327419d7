"""What a Prefect server has: whether it can be used, our deployments, automations, work pools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
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
from prefect.events.schemas.automations import Automation
from prefect.exceptions import ObjectNotFound, PrefectException, PrefectHTTPStatusError
from prefect.states import Crashed

from benchcore.errors import UserError
from benchcore.running.verify.preflight import probe_prefect_api

TAG = "deadheat"
"""The tag of the deployments and automations that `deadheat deploy` owns and may remove."""
REFUSED = (PrefectException, httpx.HTTPError, RuntimeError, ValueError)
"""What Prefect's client raises when a server refuses a request or does not answer it."""
PAGE = 200
"""Objects per request."""
_Object = TypeVar("_Object")


def check_server() -> None:
    """Raises UserError unless PREFECT_API_URL names a server that answers and admits us."""
    action = "start one (`deadheat up`, or `prefect server start`) and set PREFECT_API_URL"
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        raise UserError(f"wanted a Prefect server, got no PREFECT_API_URL; {action}")
    api = probe_prefect_api(url)
    if not api.usable:
        raise UserError(f"wanted a Prefect server, but {api.detail}; {action}")
    try:
        with get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()
            client.read_work_pools(limit=1)
    except PrefectHTTPStatusError as error:
        if error.response.status_code in (401, 403):
            raise UserError(
                "wanted access to the Prefect server, but it refused our credentials; set "
                "PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING"
            ) from error
        raise UserError(f"wanted a Prefect server, but {explain(error)}; {action}") from error
    except REFUSED as error:
        raise UserError(
            f"wanted a Prefect server of our own version, but {explain(error)}; {action}"
        ) from error


def explain(error: BaseException) -> str:
    """The server's reason, in one line."""
    text = " ".join(str(error).split())
    reason = re.search(r"""'msg': (["'])(.*?)\1, 'input'""", text)
    return (reason[2] if reason else text)[:600]


def _read_pages(read: Callable[[int], list[_Object]]) -> list[_Object]:
    found: list[_Object] = []
    while page := read(len(found)):
        found += page
        if len(page) < PAGE:
            break
    return found


def list_our_deployments(client: SyncPrefectClient) -> list[DeploymentResponse]:
    """The deployments with our tag."""
    tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    return _read_pages(
        lambda offset: client.read_deployments(deployment_filter=tagged, limit=PAGE, offset=offset)
    )


def list_our_automations(client: SyncPrefectClient) -> dict[str, Automation]:
    """The automations with our tag, by name."""
    every = _read_pages(lambda offset: client.read_automations(limit=PAGE, offset=offset))
    return {each.name: each for each in every if TAG in each.tags}


def find_deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    """A deployment by its full name (`flow/deployment`), if it exists."""
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def find_pool(client: SyncPrefectClient, name: str) -> WorkPool | None:
    """A work pool by its name, if it exists."""
    try:
        return client.read_work_pool(name)
    except ObjectNotFound:
        return None


def ensure_pool(client: SyncPrefectClient, wanted: WorkPoolCreate) -> None:
    """Create a work pool unless it exists. Raises UserError if it exists with another type."""
    found = find_pool(client, wanted.name)
    if found is None:
        client.create_work_pool(wanted)
    elif found.type != wanted.type:
        raise UserError(
            f"wanted a work pool {wanted.name!r} of type {wanted.type!r}, got type "
            f"{found.type[:100]!r}; delete that pool if nobody needs it, with `prefect work-pool "
            f"delete {wanted.name}`, and rerun"
        )


def is_served(client: SyncPrefectClient, pool: str) -> bool:
    """Whether a work pool has a worker that is online."""
    try:
        workers = client.read_workers_for_work_pool(pool)
    except PrefectHTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        return False  # a worker that starts creates its pool
    return any(worker.status == "ONLINE" for worker in workers)


def has_worker(pool: str) -> bool:
    """Whether a work pool of the server that PREFECT_API_URL names has a worker online."""
    with get_client(sync_client=True) as client:
        return is_served(client, pool)


def crash_orphans(pool: str) -> None:
    """Set the unfinished runs of a pool to Crashed, so that they free their places. Only for a
    pool whose workers are known to be gone."""
    under_way = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=under_way))
            ),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            limit=PAGE,
        )
        for run in runs:
            reason = "its worker was stopped; start it again to resume"
            client.set_flow_run_state(run.id, Crashed(message=reason), force=True)
