"""Settles how flows find their Prefect API: a temporary one beside them, unless the user chose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchcore.state import State
from flows import death_watch

_watches: list[subprocess.Popen[bytes]] = []
"""They outlive this process by a moment, and Python warns of those that it forgets."""


def settle_prefect(state: State) -> None:
    """Without PREFECT_API_URL a temporary server runs beside the flow, its home in the state
    folder. Telemetry is off. The console is ours; Prefect's log goes to its API."""
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
    """Let this process, and whatever it starts, use that server, which wants that `auth`."""
    os.environ["PREFECT_API_URL"] = api
    os.environ["PREFECT_API_AUTH_STRING"] = auth


def start_temporary_api() -> None:
    """Start Prefect's temporary server now, deaf to Ctrl-C, unless PREFECT_API_URL names one. It
    ends with this process, however that ends.

    A terminal sends Ctrl-C to every process of its group. A server that dies of it leaves the
    flow trying for minutes to say that it was interrupted. A signal that is blocked here stays
    blocked in the child; Prefect ends the server with another one.
    """
    if os.environ.get("PREFECT_API_URL"):
        return
    from prefect.client.orchestration import get_client
    from prefect.server.api.server import SubprocessASGIServer

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with get_client(sync_client=True) as client:
            client.hello()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if server := SubprocessASGIServer().server_process:
        _bind_to_us(server.pid)


def _bind_to_us(pid: int) -> None:
    """Prefect ends its server only where Python ends in order."""
    watch = [sys.executable, "-I", "-S", death_watch.__file__, str(pid)]
    _watches.append(subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True))
