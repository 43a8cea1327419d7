"""A PostgreSQL of one trial, for its results."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from flows.server import postgres, services
from flows.server.services import Service

_STARTING_S = 60
_DATA = "postgres"


class OwnPostgres:
    """A server that its supervisor starts again when it ends, until it is stopped."""

    def __init__(self, folder: Path, installed: postgres.Postgres) -> None:
        self._password = secrets.token_hex(8)
        password = folder / "password"
        password.write_text(self._password)
        self._data = folder / _DATA
        postgres.make_cluster(installed, self._data, password)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        command = installed.command(self._data, self._port)
        self._service = Service(name="database", folder=folder / "log", command=command)

    @property
    def url(self) -> str:
        """URL of its database, which holds the results."""
        return f"postgresql+psycopg://deadheat:{self._password}@127.0.0.1:{self._port}/prefect"

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises UserError."""
        services.start(self._service)
        services.wait_until(self._service, self._is_ready, _STARTING_S)

    def wait(self) -> None:
        """Wait until its supervisor has started it again. Raises TimeoutError."""
        until = time.monotonic() + _STARTING_S
        while not self._is_ready():
            if time.monotonic() > until:
                raise TimeoutError(f"wanted {self._service.name} again; see {self._service.log}")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        return postgres.open_database(self._port, self._password)

    def stop(self) -> None:
        """End it and its supervisor."""
        services.stop(self._service)

    def kill(self) -> None:
        """Kill its first process, after which the others end."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def end_connections(self) -> None:
        """End all connections, as an administrator or a failover does."""
        plain = self.url.replace("+psycopg", "")
        with suppress(psycopg.OperationalError), psycopg.connect(plain, autocommit=True) as own:
            own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND usename = current_user"
            )
