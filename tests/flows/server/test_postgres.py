"""A PostgreSQL of our own: real, on loopback, closed to anyone without its password."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchcore.errors import UserError
from flows.server import postgres, services
from flows.server.postgres import Postgres
from flows.server.services import Service
from flows.server.up import Database, _choose_database


@pytest.fixture
def found() -> Postgres:
    installed = postgres.find_postgres()
    if isinstance(installed, str):
        if os.environ.get("CI"):
            pytest.fail(installed)
        pytest.skip(installed)
    return installed


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("pass word'")
    return path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def served(found: Postgres, password: Path, port: int, tmp_path: Path) -> Iterator[Service]:
    data = tmp_path / "postgres"
    postgres.make_cluster(found, data, password)
    command = found.command(data, port)
    service = Service(name="database", folder=tmp_path / "log", command=command)
    services.start(service)
    yield service
    services.stop(service)


def test_the_database_requires_its_password_and_keeps_its_data(
    served: Service, found: Postgres, password: Path, port: int, tmp_path: Path
) -> None:
    services.wait_until(served, lambda: postgres.open_database(port, "pass word'"), 60)
    assert postgres.open_database(port, "pass word'")  # the database is there: no error
    assert not postgres.open_database(port, "another")
    url = f"host=127.0.0.1 port={port} user=deadheat dbname=prefect"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(url)
    with psycopg.connect(url, password="pass word'") as connection:
        connection.execute("CREATE TABLE kept (number int)")
        (where,) = connection.execute("SHOW listen_addresses").fetchone() or ()
    assert where == "127.0.0.1"
    postgres.make_cluster(found, tmp_path / "postgres", password)
    with psycopg.connect(url, password="pass word'") as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert services.stop(served) and not services.find(served)
    assert not postgres.open_database(port, "pass word'")


def test_a_database_that_cannot_be_created_leaves_nothing(found: Postgres, tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    with pytest.raises(UserError, match="--database sqlite"):
        postgres.make_cluster(found, data, tmp_path / "no password")
    assert not data.exists()


def test_an_interrupted_first_start_is_repeated(
    found: Postgres, password: Path, tmp_path: Path
) -> None:
    (tmp_path / "postgres.unfinished").mkdir()
    (tmp_path / "postgres.unfinished" / "half").touch()
    postgres.make_cluster(found, tmp_path / "postgres", password)
    assert (tmp_path / "postgres" / "PG_VERSION").exists()
    assert not (tmp_path / "postgres" / "half").exists()


def test_without_postgresql_sqlite_is_used_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PACKAGED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = _choose_database(Database.AUTO)
    assert isinstance(reason, str) and "not installed" in reason
    with pytest.raises(UserError, match=r"not installed.*--database sqlite"):
        _choose_database(Database.POSTGRESQL)


def test_root_without_user_namespaces_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres, "find_binaries", lambda: Path("/usr/bin"))
    monkeypatch.setattr(postgres, "_AS_ANOTHER", ("sh", "-c", "echo denied >&2; exit 1"))
    reason = postgres.find_postgres()
    assert isinstance(reason, str) and "as root, and denied" in reason


def test_the_newest_of_several_installations_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for major in ("9.6", "15", "17"):
        binaries = tmp_path / major / "bin"
        binaries.mkdir(parents=True)
        (binaries / "initdb").touch()
    (tmp_path / "18" / "bin").mkdir(parents=True)  # its clients alone
    monkeypatch.setattr(postgres, "_PACKAGED", (f"{str(tmp_path)[1:]}/*/bin",))
    assert postgres.find_binaries() == tmp_path / "17" / "bin"
