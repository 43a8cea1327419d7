"""Work pools of a Prefect server: made where missing, and whether a worker serves one."""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from benchcore.errors import UserError


def ensure_pool(client: SyncPrefectClient, wanted: WorkPoolCreate) -> bool:
    """Make a pool unless it is there; whether it was made. Raises UserError if one of its name is
    of another type."""
    try:
        found = client.read_work_pool(wanted.name)
    except ObjectNotFound:
        client.create_work_pool(wanted)
        return True
    if found.type != wanted.type:
        raise UserError(
            f"wanted a work pool {wanted.name!r} of type {wanted.type!r}, got type "
            f"{found.type[:100]!r}; rename that pool"
        )
    return False


def is_served(client: SyncPrefectClient, pool: str) -> bool:
    """Whether a worker that is alive serves a pool."""
    try:
        workers = client.read_workers_for_work_pool(pool)
    except PrefectHTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        return False  # a worker that starts makes its pool
    return any(worker.status == "ONLINE" for worker in workers)
