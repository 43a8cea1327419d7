"""Which Prefect API flows use: the one that PREFECT_API_URL names, or a temporary server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from benchcore.state import State
from flows.server import watchdog

if TYPE_CHECKING:  # Prefect takes its settings when it is imported
    from prefect.client.orchestration import SyncPrefectClient

_STORAGE = "prefect.server.concurrency.lease_storage.filesystem"
LEASES = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _STORAGE}
"""For a server: a restart keeps track of who holds a concurrency limit. In memory, Prefect's
default, a measuring task that lost its server would block all others for good."""
_watchdogs: list[subprocess.Popen[bytes]] = []
"""They outlive this process by a moment, and Python warns about those that it forgets."""


def settle_prefect(state: State) -> None:
    """Set defaults for Prefect: its home is in the state folder, telemetry is off, its log goes to
    its API and not to the console, and without PREFECT_API_URL it starts a temporary server."""
    defaults = {
        "PREFECT_HOME": str(state.root / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def use_server(api: str, auth: str) -> None:
    """Make this process and its children use that server with that secret."""
    os.environ["PREFECT_API_URL"] = api
    os.environ["PREFECT_API_AUTH_STRING"] = auth


def start_temporary_api() -> None:
    """Start Prefect's temporary server now, deaf to Ctrl-C, unless PREFECT_API_URL names one. It
    ends with this process, however that ends.

    A terminal sends Ctrl-C to every process of its group. If the server died of it, the flow would
    try for minutes to report that it was interrupted. A signal that is blocked here stays blocked
    in the child; Prefect ends the server with another one.
    """
    if os.environ.get("PREFECT_API_URL"):
        return
    from prefect.client.orchestration import get_client
    from prefect.server.api.server import SubprocessASGIServer

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with get_client(sync_client=True) as client:
            client.hello()
            _free_measure_limit(client)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if server := SubprocessASGIServer().server_process:
        _watch(server.pid)


def _free_measure_limit(client: SyncPrefectClient) -> None:
    """A run that was killed may hold the limit of measuring tasks, if the database has one, and a
    temporary server does not expire leases."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.exceptions import ObjectNotFound

    from tasks.measurement import MEASURE_LIMIT

    with contextlib.suppress(ObjectNotFound):
        free = GlobalConcurrencyLimitUpdate(active_slots=0)
        client.update_global_concurrency_limit(MEASURE_LIMIT, free)


def _watch(pid: int) -> None:
    """End the server with this process: Prefect does so only if Python exits in order."""
    command = [sys.executable, "-I", "-S", watchdog.__file__, str(pid)]
    _watchdogs.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
