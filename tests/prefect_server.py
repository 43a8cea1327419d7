"""A real Prefect server on loopback, for tests of what talks to one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREFECT = str(Path(sys.executable).parent / "prefect")


@contextmanager
def serve_prefect(
    folder: Path, around: Mapping[str, str], *, ui: bool = False, database: str | None = None
) -> Iterator[dict[str, str]]:
    """A server, its home and log in the folder; what its clients and workers need to be told,
    beside the environment around it. `database` is the URL of a PostgreSQL; none: SQLite."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **around,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "DO_NOT_TRACK": "1",
    }
    if database:
        environment["PREFECT_API_DATABASE_CONNECTION_URL"] = database
    listen = ["--host", "127.0.0.1", "--port", str(port), *([] if ui else ["--no-ui"])]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [PREFECT, "server", "start", *listen], env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while not _answers(environment["PREFECT_API_URL"]):
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield environment
    finally:
        end(server)


def end(process: subprocess.Popen[Any]) -> None:
    """Ask a server or a worker to end. Now and then Prefect's do not listen: then kill it."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
            return response.status == 200
    except OSError:
        return False
