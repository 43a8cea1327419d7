"""A database is copied row by row to either engine, goes to files and back; damage is found."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet
import pytest
from command_line import run_here
from postgres_server import make_database
from result_documents import JAX, TORCH, make_history, spool_document
from sqlalchemy import delete, select, text, update
from sqlalchemy.orm import Session

from benchcore.errors import DamagedFileError, UserError
from benchcore.state import State
from benchcore.store.copies import transfer
from benchcore.store.copies.parquet import MANIFEST, export_tables, import_tables
from benchcore.store.copies.transfer import copy_database, find_damage
from benchcore.store.database import Engine, begin_writing, count_rows, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import Base, ContenderRun, DuelRun, FailedCheckRow, StartRun
from data_checks.check import check_campaign

SUITES = {"equivalence"}


def _dump(engine: Engine) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return {
            table.name: sorted(map(str, connection.execute(select(table))))
            for table in Base.metadata.sorted_tables
        }


@pytest.fixture
def filled(state: State, engine: Engine) -> Engine:
    """Three nights; the last two of a new version; a check failed."""
    return _fill(state, engine)


@pytest.fixture
def each_filled(state: State, each_engine: Engine) -> Engine:
    """As `filled`, on both engines."""
    return _fill(state, each_engine)


def _fill(state: State, engine: Engine) -> Engine:
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


@pytest.mark.parametrize("to", ["another database", "files"])
def test_what_a_night_ingests_meanwhile_is_not_copied_in_part(
    to: str, state: State, each_engine: Engine, tmp_path: Path
) -> None:
    nights = make_history([0.1, 0.2])
    spool_document(state.spool, nights[0])
    ingest_spool(each_engine, state)
    before = {name: len(rows) for name, rows in _dump(each_engine).items()}

    def ingest(line: str) -> None:
        if line.startswith("duel_run: "):
            spool_document(state.spool, nights[1])
            assert len(ingest_spool(each_engine, state).ingested) == 1

    if to == "files":
        counts = export_tables(each_engine, tmp_path / "tables", ingest)
    else:
        other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
        counts = copy_database(each_engine, other, ingest)
        other.dispose()
    assert counts == before
    assert len(_dump(each_engine)["duel_run"]) == 2


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

    parts = transfer.read_parts
    monkeypatch.setattr(transfer, "read_parts", read)
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


def test_rows_without_their_parts_are_damage(each_filled: Engine) -> None:
    assert find_damage(each_filled) == []
    with Session(each_filled) as session, session.begin():
        first, second, _ = session.scalars(select(DuelRun.id).order_by(DuelRun.id))
        session.execute(delete(StartRun).where(StartRun.duel_run == first))
        session.execute(delete(ContenderRun).where(ContenderRun.duel_run == second))
    assert sorted(find_damage(each_filled)) == [
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


def test_tables_go_to_files_and_to_either_engine(
    filled: Engine, other: Engine, tmp_path: Path
) -> None:
    before = _dump(filled)
    counts = export_tables(filled, tmp_path / "tables")
    assert counts == {name: len(rows) for name, rows in before.items()}
    assert import_tables(tmp_path / "tables", other) == counts
    # From there through files again: rows of PostgreSQL are those that SQLite had.
    export_tables(other, tmp_path / "again")
    back = open_database(f"sqlite:///{tmp_path / 'back.db'}")
    import_tables(tmp_path / "again", back)
    assert _dump(back) == before
    back.dispose()


def test_other_programs_read_plain_columns(filled: Engine, tmp_path: Path) -> None:
    export_tables(filled, tmp_path / "tables")
    starts = pyarrow.parquet.read_table(tmp_path / "tables" / "start_run.parquet")
    assert str(starts.schema.field("warm_up").type) == "string"
    assert isinstance(json.loads(starts["warm_up"][0].as_py()), dict)
    duels = pyarrow.parquet.read_table(tmp_path / "tables" / "duel_run.parquet")
    assert {str(each.type) for each in duels.schema} >= {"int64", "timestamp[us, tz=UTC]"}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "can't be read"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: _flip(path), "can't be read"),
        (lambda path: _drop_rows(path), r"wanted 3 rows, got 2"),
    ],
    ids=["truncated", "missing", "flipped", "fewer rows"],
)
def test_a_damaged_file_is_refused_and_nothing_is_written(
    damage, reason: str, filled: Engine, tmp_path: Path
) -> None:
    export_tables(filled, tmp_path / "tables")
    damage(tmp_path / "tables" / "duel_run.parquet")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    other = open_database(url)
    with pytest.raises(DamagedFileError, match=reason):
        import_tables(tmp_path / "tables", other)
    assert sum(count_rows(url).values()) == 1  # the revision of the tables
    other.dispose()


def _flip(path: Path) -> None:
    """Change one bit of the first page's data, which its checksum covers."""
    data = bytearray(path.read_bytes())
    first = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0)
    data[first.dictionary_page_offset + first.total_compressed_size // 2] ^= 1
    path.write_bytes(bytes(data))


def _drop_rows(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.slice(1), path)


def test_a_folder_of_another_kind_or_version_is_refused(filled: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    with pytest.raises(UserError, match="wanted a folder that `deadheat db export` wrote"):
        import_tables(folder, filled)
    export_tables(filled, folder)
    for taken in (folder, folder / MANIFEST):
        with pytest.raises(UserError, match="wanted a new or empty folder"):
            export_tables(filled, taken)
    with pytest.raises(UserError, match="without rows, got one with rows in duel_run, "):
        import_tables(folder, filled)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "revision": "0001"}))
    with pytest.raises(UserError, match="of revision 0001; import it with the version"):
        import_tables(folder, filled)


def test_without_pyarrow_both_say_what_to_install(
    filled: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match="run `uv sync --extra parquet` in the repository"):
        export_tables(filled, tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_the_commands_export_and_import(filled: Engine, state: State, tmp_path: Path) -> None:
    folder, new = str(tmp_path / "tables"), str(tmp_path / "new")
    done = run_here("db", "export", folder, "--state", str(state.root))
    assert done.returncode == 0 and "rows exported" in done.stdout, done
    back = run_here("db", "import", folder, "--state", new, "--json")
    assert back.returncode == 0 and json.loads(back.stdout)["duel_run"] == 3, back
    again = run_here("db", "import", folder, "--state", new)
    assert again.returncode == 2 and "without rows" in again.stderr
