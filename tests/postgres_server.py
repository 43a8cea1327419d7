"""A PostgreSQL of the tests' own, from the system's package: one server per test process."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from flows.server import postgres, services
from flows.server.services import Service

_PASSWORD = "of-a-test"


@contextmanager
def serve_postgres(folder: Path) -> Iterator[str]:
    """The URL of its server's first database. Skips the test where PostgreSQL is not installed,
    except in CI."""
    found = postgres.find_postgres()
    if isinstance(found, str):
        if os.environ.get("CI"):
            pytest.fail(found)
        pytest.skip(found)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    password = folder / "password"
    password.write_text(_PASSWORD)
    postgres.make_cluster(found, folder / "data", password)
    # Nothing of it must outlive a crash of this machine.
    command = (*found.command(folder / "data", port), "-c", "fsync=off")
    service = Service(name="database", folder=folder / "log", command=command)
    services.start(service)
    try:
        services.wait_until(service, lambda: postgres.open_database(port, _PASSWORD), 60)
        yield f"postgresql+psycopg://deadheat:{_PASSWORD}@127.0.0.1:{port}/prefect"
    finally:
        services.stop(service)


def make_database(server: str, name: str) -> str:
    """The URL of a new, empty database of a server."""
    name = re.sub(r"\W", "_", name).lower()[-50:] + f"_{time.monotonic_ns()}"
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{server.rpartition('/')[0]}/{name}"
