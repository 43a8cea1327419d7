"""A real Prefect server on loopback, for tests of what talks to one."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

PREFECT = str(Path(sys.executable).parent / "prefect")
MEMO = "memo_store.toml"
"""What a server writes to its home once its own blocks are registered in its database."""


class Template:
    """A new server's home, with all tables made: half of the CPU time of a first start goes into
    them. The processes of a test run share it; without a folder, each server makes its own."""

    folder: Path | None = None

    @classmethod
    def copy(cls, home: Path) -> None:
        """Begin a home with it, if a server of this test run has left one."""
        if cls.folder is not None and cls.folder.exists():
            shutil.copytree(cls.folder, home)

    @classmethod
    def store(cls, home: Path) -> None:
        """Take it from a server that nobody has used yet, if there is none."""
        if cls.folder is None or cls.folder.exists() or not (home / "prefect.db").exists():
            return
        part = cls.folder.with_name(f"{cls.folder.name}-{home.parent.name}-{home.stat().st_ino}")
        part.mkdir()
        if (home / MEMO).exists():  # before the database, which then has these blocks
            shutil.copy(home / MEMO, part)
        with (
            closing(sqlite3.connect(home / "prefect.db")) as live,
            closing(sqlite3.connect(part / "prefect.db")) as kept,
        ):
            live.backup(kept)
        try:
            part.rename(cls.folder)
        except OSError:  # another process of this run was first
            shutil.rmtree(part)


@contextmanager
def serve_prefect(
    folder: Path, around: Mapping[str, str], *, ui: bool = False, database: str | None = None
) -> Iterator[dict[str, str]]:
    """A server, its home and log in the folder; the variables that its clients and workers need,
    beside the environment around it. `database` is the URL of a PostgreSQL; none: SQLite."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = folder / "prefect"
    environment = {
        **around,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "DO_NOT_TRACK": "1",
    }
    if database:
        environment["PREFECT_API_DATABASE_CONNECTION_URL"] = database
    else:
        Template.copy(home)
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
        Template.store(home)
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
