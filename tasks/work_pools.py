"""Work pools of a Prefect server: made where missing, and whether a worker serves one."""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from benchcore.errors import UserError


def find_pool(client: SyncPrefectClient, name: str) -> WorkPool | None:
    """A pool by its name, if it is there."""
    try:
        return client.read_work_pool(name)
    except ObjectNotFound:
        return None


def ensure_pool(client: SyncPrefectClient, wanted: WorkPoolCreate) -> None:
    """Make a pool unless it is there. Raises UserError if one of its name is of another type."""
    found = find_pool(client, wanted.name)
    if found is None:
        client.create_work_pool(wanted)
    elif found.type != wanted.type:
        raise UserError(
            f"wanted a work pool {wanted.name!r} of type {wanted.type!r}, got type "
            f"{found.type[:100]!r}; rename that pool"
        )


def is_served(client: SyncPrefectClient, pool: str) -> bool:
    """Whether a worker that is alive serves a pool."""
    try:
        workers = client.read_workers_for_work_pool(pool)
    except PrefectHTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        return False  # a worker that starts makes its pool
    return any(worker.status == "ONLINE" for worker in workers)
