"""Which Prefect API flows use: the one that PREFECT_API_URL names, or a temporary server."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from benchcore.errors import ServerNotStartedError
from benchcore.state import State
from flows.server import watchdog

if TYPE_CHECKING:  # Prefect takes its settings when it is imported
    from prefect.client.orchestration import SyncPrefectClient

_STORAGE = "prefect.server.concurrency.lease_storage.filesystem"
_KEPT = timedelta(days=90)
OF_SERVER = {
    # A restart keeps track of who holds a concurrency limit. In memory, Prefect's default, a
    # measuring task that lost its server would block all others forever.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _STORAGE,
    # Prefect keeps every run and its log forever, unless a setting says otherwise.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(int(_KEPT.total_seconds())),
}
"""Settings of every server that we start."""
_FORGOTTEN_AT_ONCE = 50
_START_S = 180.0
_SPACE_BYTES = 10_000_000
"""A server's database and its journal take some 6 MB."""


def set_prefect_defaults(state: State) -> None:
    """Set defaults for Prefect: its home is in the state folder, telemetry is off, and its log goes
    to its API, not to the console. Without PREFECT_API_URL it starts a temporary server."""
    defaults = {
        "PREFECT_HOME": str(state.root / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        # As lost connections, 502 and 503, which Prefect waits for itself.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504",
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


def start_temporary_api() -> str:
    """Start a temporary Prefect server now, unless PREFECT_API_URL names one; the URL of its API.
    It requires a password, ends with this process, however that ends, and is started again if it
    dies.

    It has a session of its own, because a terminal sends Ctrl-C to every process of its group.
    Without the server the flow would try for minutes to report that it was interrupted.
    """
    if named := os.environ.get("PREFECT_API_URL"):
        return named
    if _Temporary.process is None:
        _check_space(Path(os.environ["PREFECT_HOME"]))
        _move_damaged(Path(os.environ["PREFECT_HOME"]))
        _Temporary.begin()
    os.environ["PREFECT_API_AUTH_STRING"] = _Temporary.auth
    if "prefect" in sys.modules:  # it took its settings before
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
    from prefect.client.orchestration import get_client
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    server.port, server.running = _Temporary.port, True
    server.server_process = _Temporary.process
    _wait_until_healthy(server.api_url)
    with get_client(sync_client=True) as client:
        _free_measure_limit(client)
        _delete_old_runs(client)
    return server.api_url


def _check_space(home: Path) -> None:
    """On a full disk a server waits for its database instead of ending."""
    home.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(home).free < _SPACE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(home))


def _move_damaged(home: Path) -> None:
    """Move a damaged database of earlier servers away: a server would not come up with it, and all
    that it knows are logs of past runs."""
    path = home / "prefect.db"
    if not path.exists() or not _is_damaged(path):
        return
    path.replace(path.with_name("prefect.db.damaged"))
    for beside in ("prefect.db-wal", "prefect.db-shm", "memo_store.toml"):
        (home / beside).unlink(missing_ok=True)


def _is_damaged(path: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
    except sqlite3.DatabaseError as error:
        from benchcore.store.database import is_damaged  # SQLAlchemy takes 0.5 s

        return is_damaged(error)


class _Temporary:
    """The one server of this process, behind its watchdog."""

    process: subprocess.Popen[bytes] | None = None
    port = 0
    auth = f"deadheat:{secrets.token_hex(16)}"
    ending = threading.Event()

    @classmethod
    def begin(cls) -> None:
        """Start the watchdog, and start it again if something kills it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cls.port = free.getsockname()[1]
        cls.process = _start_watchdog(cls.port, cls.auth)
        threading.Thread(target=cls._restart_watchdog, daemon=True).start()
        atexit.register(cls.end)

    @classmethod
    def _restart_watchdog(cls) -> None:
        while cls.process is not None:
            cls.process.wait()
            if cls.ending.wait(1):
                return
            cls.process = _start_watchdog(cls.port, cls.auth)

    @classmethod
    def end(cls) -> None:
        """End both."""
        cls.ending.set()
        if cls.process is not None and cls.process.stdin is not None:
            cls.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                cls.process.wait(15)
            cls.process.kill()
            cls.process.wait()


def _start_watchdog(port: int, auth: str) -> subprocess.Popen[bytes]:
    app = ("--factory", "prefect.server.api.server:create_app", "--lifespan", "on")
    listen = ("--host", "127.0.0.1", "--port", str(port), "--log-level", "critical")
    server = (sys.executable, "-m", "uvicorn", *app, *listen)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, *server],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={
            **os.environ,
            **OF_SERVER,
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_SERVER_API_AUTH_STRING": auth,
            "PREFECT_API_AUTH_STRING": auth,
        },
    )


def _wait_until_healthy(api: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{api}/health", timeout=5):
            return
        if time.monotonic() > deadline:
            raise ServerNotStartedError(
                f"wanted a temporary Prefect server within {_START_S:g} s, but it does not answer; "
                "rerun the command, or set PREFECT_API_URL to a server that runs"
            )
        time.sleep(0.1)


def _delete_old_runs(client: SyncPrefectClient) -> None:
    """Delete runs that ended long ago, with their logs: a temporary server has no service for it.
    What our own documents hold is not in them."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterEndTime

    ended = FlowRunFilterEndTime.model_validate({"before_": datetime.now(UTC) - _KEPT})
    old = FlowRunFilter(end_time=ended)
    for run in client.read_flow_runs(flow_run_filter=old, limit=_FORGOTTEN_AT_ONCE):
        client.delete_flow_run(run.id)


def _free_measure_limit(client: SyncPrefectClient) -> None:
    """A run that was killed may hold the limit of measuring tasks, if the database has one, and a
    temporary server does not expire leases."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.exceptions import ObjectNotFound

    from tasks.measurement import MEASURE_LIMIT

    with contextlib.suppress(ObjectNotFound):
        free = GlobalConcurrencyLimitUpdate(active_slots=0)
        client.update_global_concurrency_limit(MEASURE_LIMIT, free)
