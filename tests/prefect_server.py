"""A real Prefect server on loopback, for tests of what talks to one from Slurm jobs."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_slurm import LocalSlurm

PREFECT = str(Path(sys.executable).parent / "prefect")


@contextmanager
def serve_prefect(folder: Path, slurm: LocalSlurm) -> Iterator[dict[str, str]]:
    """A server, its home and log in the folder; what its clients and workers need to be told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **slurm.environment,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "DO_NOT_TRACK": "1",
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 120
        while not _answers(environment["PREFECT_API_URL"]):
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield environment
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
            return response.status == 200
    except OSError:
        return False
