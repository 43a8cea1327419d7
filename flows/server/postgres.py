"""A PostgreSQL of `deadheat up`'s own, for Prefect's server, from the system's package.

It listens on loopback, requires a password, and keeps its files in `postgres` of the state folder.
PostgreSQL refuses to run as root; root starts it in a user namespace, as another user.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from benchcore.errors import UserError

_DATABASE = "prefect"
_OWNER = "deadheat"
_PACKAGED = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
_AS_ANOTHER = ("unshare", "--user", "--map-user=1", "--map-group=1", "--")
"""Any id but root's; outside the namespace the files belong to the user who started it."""


@dataclass(frozen=True)
class Postgres:
    """The programs of a PostgreSQL, and the command to prefix them with."""

    binaries: Path
    prefix: tuple[str, ...]

    def command(self, data: Path, port: int) -> tuple[str, ...]:
        """The command that serves the files in `data` on a port of loopback only."""
        listen = ("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
        serve = (str(self.binaries / "postgres"), "-D", str(data), "-p", str(port))
        return (*self.prefix, *serve, *listen)


def find_postgres() -> Postgres | str:
    """The newest PostgreSQL of this machine, or why none can run."""
    found = find_binaries()
    if found is None:
        return "PostgreSQL's server is not installed (package `postgresql`)"
    if os.geteuid():
        return Postgres(found, ())
    tried = subprocess.run([*_AS_ANOTHER, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"PostgreSQL does not run as root, and {' '.join(tried.stderr.split())[-200:]}"
    return Postgres(found, _AS_ANOTHER)


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: the newest package's, else from PATH."""
    packaged = [folder for pattern in _PACKAGED for folder in Path("/").glob(pattern)]
    on_path = shutil.which("postgres")
    others = [Path(on_path).resolve().parent] if on_path else []
    candidates = [*sorted(packaged, key=_major, reverse=True), *others]
    return next((each for each in candidates if (each / "initdb").exists()), None)


def _major(binaries: Path) -> int:
    found = re.search(r"\d+", binaries.parent.name)
    return int(found[0]) if found else 0


def make_cluster(postgres: Postgres, data: Path, password: Path) -> None:
    """Create the cluster's files, all or none, unless they exist; `password` is the file of the
    password that connections need. Raises UserError."""
    if data.exists():
        return
    unfinished = data.with_name(f"{data.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    made = ("--username", _OWNER, "--auth", "scram-sha-256", "--pwfile", str(password))
    how = ("--encoding", "UTF8", "--no-locale", "--pgdata", str(unfinished))
    done = subprocess.run(
        [*postgres.prefix, str(postgres.binaries / "initdb"), *made, *how],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(
            f"wanted a PostgreSQL in {str(data)!r}, but {' '.join(done.stderr.split())[-400:]}; "
            "free space, set the folder's permissions, or choose `--database sqlite`"
        )
    unfinished.rename(data)


def open_database(port: int, password: str) -> bool:
    """Whether it accepts connections; creates Prefect's database if it does."""
    try:
        with psycopg.connect(
            host="127.0.0.1",
            port=port,
            user=_OWNER,
            password=password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_DATABASE)))
            return True
    except psycopg.OperationalError:
        return False


def make_url(port: int, password: str) -> str:
    """The URL of Prefect's database; the password needs no quoting."""
    return f"postgresql+asyncpg://{_OWNER}:{password}@127.0.0.1:{port}/{_DATABASE}"
