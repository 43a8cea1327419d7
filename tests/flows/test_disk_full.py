"""A really full disk is reported, and once there is space the same command continues."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from errno import EACCES, EDQUOT, ENOSPC
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from benchcore.errors import UserError
from benchcore.planning.snapshot import take_snapshot
from benchcore.state import State
from benchcore.store.database import is_disk_full, open_database

NO_DOCUMENT, NO_PAGE = 70_000, 1_900_000
"""Bytes: too few for a duel and its document, and enough for them but not for the page. One and
a half million are the bytecode of the snapshot and the database, which grow with the project."""

DEADHEAT = str(Path(sys.executable).parent / "deadheat")
pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """With a snapshot on it, whose size grows with the project."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk of a size of its own: {done.stderr.strip()}")
    take_snapshot(State(folder / "state").snapshots)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _leave(disk: Path, size: int) -> None:
    """Fill the disk up to so many bytes."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    space = os.statvfs(disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_frsize - size))


def _run(plan: Path, disk: Path, *unset: str) -> subprocess.CompletedProcess[str]:
    without = {"DEADHEAT_DATABASE_URL", "PREFECT_HOME", *unset}
    environ = {key: value for key, value in os.environ.items() if key not in without}
    command = [DEADHEAT, "run", str(plan), "--state", str(disk / "state")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_full_disk_is_reported_and_results_are_kept(disk: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command = [DEADHEAT, "plan", "--profile", "smoke", "--json"]
    plan.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    _leave(disk, NO_DOCUMENT)
    no_server = _run(plan, disk, "PREFECT_API_URL")
    assert no_server.returncode == 1 and "the disk is full" in no_server.stderr, no_server
    for size in (NO_DOCUMENT, NO_PAGE):
        assert not list(disk.glob("state/spool/nightly-*/*.json"))
        _leave(disk, size)
        full = _run(plan, disk)
        assert full.returncode == 1
        assert "the disk is full" in full.stderr and "Traceback" not in full.stderr
    (document,) = disk.glob("state/spool/nightly-*/*.json")
    kept = document.read_bytes()
    (disk / "ballast").unlink()
    done = _run(plan, disk)
    assert done.returncode == 0, done.stdout
    (document,) = disk.glob("state/spool/nightly-*/*.json")
    assert document.read_bytes() == kept
    assert json.loads(kept)["contenders"][0]["status"] == "ok"


def test_a_full_database_is_a_full_disk_and_other_errors_are_not() -> None:
    with create_engine("sqlite://").connect() as connection:
        connection.execute(text("PRAGMA max_page_count = 2"))
        with pytest.raises(OperationalError) as full:
            for name in "abc":
                connection.execute(text(f"CREATE TABLE {name} (x)"))
        with pytest.raises(OperationalError) as other:
            connection.execute(text("SELECT * FROM nothing"))
    assert is_disk_full(full.value) and not is_disk_full(other.value)
    no_index = sqlite3.OperationalError("disk I/O error")
    no_index.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert is_disk_full(OperationalError("SELECT 1", None, no_index))
    assert is_disk_full(OSError(ENOSPC, "full")) and is_disk_full(OSError(EDQUOT, "quota"))
    assert not is_disk_full(OSError(EACCES, "denied"))


def test_a_disk_that_is_full_when_the_database_is_opened_is_no_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")

    def fail(connection: object) -> None:
        raise OperationalError("PRAGMA journal_mode=WAL", None, error)

    monkeypatch.setattr("benchcore.store.database.MigrationContext.configure", fail)
    url = f"sqlite:///{tmp_path / 'results.db'}"
    with pytest.raises(UserError, match="disk I/O error"):
        open_database(url)
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(OperationalError):
        open_database(url)
