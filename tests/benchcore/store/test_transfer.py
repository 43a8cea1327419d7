"""A database is copied row by row to either engine, and damage is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line import run_here
from postgres_server import make_database
from result_documents import JAX, TORCH, make_history, spool_document
from sqlalchemy import delete, select, text, update
from sqlalchemy.orm import Session

from benchcore.errors import DamagedFileError, UserError
from benchcore.state import State
from benchcore.store import transfer
from benchcore.store.database import Engine, begin_writing, count_rows, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.ingest import ingest_spool
from benchcore.store.models import Base, ContenderRun, DuelRun, FailedCheckRow, StartRun
from benchcore.store.transfer import copy_database, find_damage
from data_checks.check import check_campaign


def _dump(engine: Engine) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return {
            table.name: sorted(map(str, connection.execute(select(table))))
            for table in Base.metadata.sorted_tables
        }


@pytest.fixture
def filled(state: State, engine: Engine) -> Engine:
    """Three nights; the last two of a new version; a check failed."""
    newer = dataclasses.replace(JAX, name="jax-0.9.1", version="0.9.1")
    for document in make_history([0.1, 0.2, 0.3], later=[newer, TORCH], since=1):
        spool_document(state.spool, document)
    ingest_spool(engine, state)
    check_campaign(engine, "history")
    judge_campaign(engine, "history")
    with Session(engine) as session, session.begin():
        run = session.scalars(select(DuelRun.id)).first()
        texts = {
            "suite": "pair",
            "expectation": "agrees",
            "reason": "it does not",
            "severity": "critical",
        }
        session.add(FailedCheckRow(duel_run=run, checked_at=datetime.now(UTC), **texts))
    return engine


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        url = make_database(server, request.node.name)
    opened = open_database(url)
    yield opened
    opened.dispose()


def test_a_copy_has_the_same_rows_and_goes_there_and_back(
    filled: Engine, other: Engine, tmp_path: Path
) -> None:
    before = _dump(filled)
    counts = copy_database(filled, other)
    assert counts["duel_run"] == 3 and counts["failed_check"] > 0
    assert counts == {name: len(rows) for name, rows in before.items()}
    back = open_database(f"sqlite:///{tmp_path / 'back.db'}")
    assert copy_database(other, back) == counts
    assert _dump(back) == before
    with begin_writing(other) as session:  # numbers go on after those that were copied
        newest = session.scalars(select(FailedCheckRow).order_by(FailedCheckRow.id.desc())).first()
        assert newest is not None
        fields = {
            each.name: getattr(newest, each.name) for each in FailedCheckRow.__table__.columns
        }
        session.add(FailedCheckRow(**{**fields, "id": None}))
    back.dispose()


def test_a_database_with_rows_is_not_copied_over(filled: Engine, other: Engine) -> None:
    copy_database(filled, other)
    with pytest.raises(UserError, match="without rows, got one with rows in duel_run, "):
        copy_database(filled, other)


def test_a_copy_that_differs_is_refused_and_leaves_nothing(
    filled: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    other = open_database(url)

    def read(connection, table):
        for rows in parts(connection, table):
            changed = connection.engine.url.database == other.url.database
            yield [{**row, "batch": 17} if changed and "batch" in row else row for row in rows]

    parts = transfer._read_parts
    monkeypatch.setattr(transfer, "_read_parts", read)
    with pytest.raises(DamagedFileError, match="of 'duel_run' differs; nothing was written"):
        copy_database(filled, other)
    assert sum(count_rows(url).values()) == 1  # the revision of the tables
    other.dispose()


def test_an_interrupted_copy_leaves_the_other_database_empty(
    filled: Engine, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    other = open_database(url)

    def stop(line: str) -> None:
        if line.startswith("contender_run"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_database(filled, other, stop)
    assert sum(count_rows(url).values()) == 1
    assert copy_database(filled, other)["duel_run"] == 3
    other.dispose()


def test_rows_without_their_parts_are_damage(filled: Engine) -> None:
    assert find_damage(filled) == []
    with Session(filled) as session, session.begin():
        first, second, _ = session.scalars(select(DuelRun.id).order_by(DuelRun.id))
        session.execute(delete(StartRun).where(StartRun.duel_run == first))
        session.execute(delete(ContenderRun).where(ContenderRun.duel_run == second))
    assert sorted(find_damage(filled)) == [
        f"duel run {first} has 3 of the 5 rows of its document",
        f"duel run {second} has 1 of the 5 rows of its document",
    ]


def test_a_reference_to_nothing_is_damage(filled: Engine) -> None:
    with filled.connect() as connection:
        connection.execute(text("COMMIT"))
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        connection.execute(update(StartRun).values(contender=StartRun.contender + "?"))
        connection.commit()
    assert any(
        "'start_run' refers to a row of 'contender_run'" in each for each in find_damage(filled)
    )


def test_the_commands_check_and_copy(filled: Engine, state: State, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'backup.db'}"
    done = run_here("db", "copy", url, "--state", str(state.root))
    assert done.returncode == 0 and "rows copied, and equal" in done.stdout, done
    again = run_here("db", "copy", url, "--state", str(state.root))
    assert again.returncode == 2 and "name a new file, or an empty database" in again.stderr
    same = run_here("db", "copy", state.database_url, "--state", str(state.root))
    assert same.returncode == 2 and "another database than the one" in same.stderr
    with Session(filled) as session, session.begin():
        session.execute(delete(StartRun))
    checked = run_here("db", "check", "--state", str(state.root))
    assert checked.returncode == 1 and "deadheat rebuild" in checked.stdout
