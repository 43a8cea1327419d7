from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres_server import make_database
from proof_documents import make_proof, store_proof
from result_documents import DUEL_RUN, make_document, spool_document
from sqlalchemy import CheckConstraint, create_engine, inspect, select, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable
from stored_histories import FOUND, add_suspicion, store_history

from benchcore.errors import DamagedFileError, UserError
from benchcore.state import State
from benchcore.store.copies.parts import list_incomplete
from benchcore.store.database import (
    Engine,
    _alembic_config,
    begin_writing,
    downgrade,
    is_unreachable,
    open_database,
    upgrade,
)
from benchcore.store.history.events import store_finding
from benchcore.store.incoming.environment_locks import ingest_locks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import Base, FailedCheckRow, SuspicionRow
from benchcore.store.utc_datetime import UtcDateTime

TABLES = {
    "duel_run",
    "contender_run",
    "environment_lock",
    "start_run",
    "equivalence",
    "proof",
    "failed_check",
    "ratio",
    "suspicion",
    "event",
    "event_change",
}


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def test_a_new_database_has_the_tables_of_the_models(each_engine: Engine) -> None:
    assert tables(each_engine) == TABLES
    with each_engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_a_model_without_its_migration_is_noticed(engine: Engine) -> None:
    with begin_writing(engine) as session:
        session.execute(text("ALTER TABLE ratio DROP COLUMN scope"))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata)


def test_migrations_lead_to_the_tables_of_a_new_database(each_engine: Engine) -> None:
    new = _describe(each_engine)
    assert {kind for kinds in new.values() for kind in kinds} >= {"get_check_constraints"}
    downgrade(each_engine, "base")
    assert tables(each_engine) == set()
    upgrade(each_engine)
    assert _describe(each_engine) == new


def test_every_constraint_has_a_name_that_a_migration_can_drop(each_engine: Engine) -> None:
    """PostgreSQL makes up a name, TABLE_COLUMN_key, where the models have none."""
    declared = [each for table in Base.metadata.sorted_tables for each in table.constraints]
    assert [each for each in declared if not each.name] == []
    found = _list_constraints(each_engine)
    assert sorted(found) == sorted(str(each.name) for each in declared)
    assert "uq_event_suspicion" in found
    downgrade(each_engine, "base")
    upgrade(each_engine)
    assert sorted(_list_constraints(each_engine)) == sorted(found)


def _list_constraints(engine: Engine) -> list[str]:
    kinds = ("pk_constraint", "foreign_keys", "unique_constraints", "check_constraints")
    return [
        str(each["name"])
        for name in tables(engine)
        for kind in kinds
        for each in _as_list(getattr(inspect(engine), f"get_{kind}")(name))
    ]


def _describe(engine: Engine) -> dict[str, dict[str, list[str]]]:
    """By table: its columns, keys, constraints and indexes, as the database reports them."""
    found = inspect(engine)
    readers = (
        found.get_columns,
        found.get_pk_constraint,
        found.get_foreign_keys,
        found.get_unique_constraints,
        found.get_check_constraints,
        found.get_indexes,
    )
    return {
        name: {reader.__name__: sorted(map(_spell, _as_list(reader(name)))) for reader in readers}
        for name in tables(engine)
    }


def _as_list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _spell(part: Any) -> str:
    """Also the condition of an index, which is no text."""
    if not isinstance(part, dict):
        return str(part)
    return " ".join(str(sorted((key, _spell(each)) for key, each in part.items())).split())


def _read_all(engine: Engine) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return {
            each.name: sorted(str(tuple(row)) for row in connection.execute(select(each)))
            for each in Base.metadata.sorted_tables
        }


def test_every_migration_keeps_every_row(each_engine: Engine, state: State) -> None:
    """Also rows that refer to those of a table that SQLite copies and drops. A new table is lost in
    the older version, which has none."""
    _fill(each_engine, state)
    before = _read_all(each_engine)
    assert [name for name, rows in before.items() if not rows] == []
    assert all("'cold_compile_s'" in row for row in before["contender_run"])
    scripts = ScriptDirectory.from_config(_alembic_config())
    _head, *older = (each.revision for each in scripts.walk_revisions())
    assert older[-1] == "tables_1"
    for revision in older:
        downgrade(each_engine, revision)
        held = tables(each_engine) & before.keys()
        upgrade(each_engine)
        now = _read_all(each_engine)
        for name in held:
            assert now[name] == before[name], f"{name} after {revision}"
        with each_engine.connect() as connection:
            assert not list_incomplete(connection)
            if each_engine.dialect.name == "sqlite":
                assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def _fill(engine: Engine, state: State) -> None:
    """Rows of every table: a proven duel with a failed check, and a suspicion with its event."""
    document = make_document()
    store_history(engine, state, [document], wrong=[0])
    store_proof(state, engine, make_proof(document))
    ingest_locks(engine, state, {"0" * 64: "jax==0.9.0"})
    add_suspicion(engine, DUEL_RUN)
    store_finding(engine, 1, FOUND)


def test_a_gone_suspicion_of_a_newer_version_has_passed_in_an_older_one(
    each_engine: Engine, state: State
) -> None:
    spool_document(state.spool, make_document())
    ingest_spool(each_engine, state)
    key = {"workload": "mlp", "case_name": "tiny", "track": "default", "device_fingerprint": "d"}
    runs = dict.fromkeys(("before_run", "since_run", "after_run"), DUEL_RUN)
    at = dict.fromkeys(("since", "opened_at", "updated_at"), datetime.now(UTC))
    arms = {"a_arm": "a", "b_arm": "b", "metric": "m", "trigger": "shift"}
    row = SuspicionRow(**key, **arms, **runs, **at, ratio=1.1, reason="r", state="gone")
    with begin_writing(each_engine) as session:
        session.add(row)
    downgrade(each_engine, "tables_6")
    with each_engine.connect() as connection:
        assert connection.execute(text("SELECT state FROM suspicion")).all() == [("passed",)]
    refused = pytest.raises(IntegrityError, match="ck_suspicion_state")
    with refused, begin_writing(each_engine) as session:
        session.execute(text("UPDATE suspicion SET state = 'gone'"))
    upgrade(each_engine)
    with begin_writing(each_engine) as session:
        session.execute(text("UPDATE suspicion SET state = 'gone'"))


def test_a_migration_of_a_database_with_broken_references_changes_nothing(engine: Engine) -> None:
    downgrade(engine, "tables_2")
    with engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql(
            "INSERT INTO failed_check (duel_run, suite, expectation, reason, checked_at) "
            "VALUES ('gone', 's', 'e', 'r', '2026-01-01')"
        )
        connection.detach()
    with pytest.raises(DamagedFileError, match=r"'failed_check' refers.*deadheat rebuild"):
        upgrade(engine)
    assert "num_parts" not in [each["name"] for each in inspect(engine).get_columns("duel_run")]


def test_statuses_are_of_a_known_set(each_engine: Engine, state: State) -> None:
    wanted = {
        table.name: {str(each.name) for each in table.constraints if _is_check(each)}
        for table in Base.metadata.sorted_tables
    }
    found = {
        name: {str(each["name"]) for each in inspect(each_engine).get_check_constraints(name)}
        for name in wanted
    }
    assert found == wanted and sum(map(len, found.values())) == 6
    spool_document(state.spool, make_document())
    ingest_spool(each_engine, state)
    for table in ("contender_run", "start_run"):
        refused = pytest.raises(IntegrityError, match=f"ck_{table}_status")
        with refused, begin_writing(each_engine) as session:
            session.execute(text(f"UPDATE {table} SET status = 'fine'"))


def _is_check(constraint: object) -> bool:
    return isinstance(constraint, CheckConstraint)


@pytest.mark.parametrize("step", ["op.create_index", "command.stamp"])
def test_an_interrupted_migration_leaves_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And neither does an interrupted creation, which ends with a stamp."""
    downgrade(engine, "base")

    def break_off(*args: object, **options: object) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(f"alembic.{step}", break_off)
        with pytest.raises(RuntimeError, match="the power went"):
            upgrade(engine) if step == "op.create_index" else open_database(str(engine.url))
    assert tables(engine) == set()
    opened = open_database(str(engine.url))
    assert tables(opened) == TABLES
    opened.dispose()


def test_a_database_from_before_the_first_release_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = create_engine(url)
    with old.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0015')"))
    with pytest.raises(UserError, match=r"revision 0015\).*`deadheat rebuild`, which makes it"):
        open_database(url)
    assert inspect(old).get_table_names() == ["alembic_version"]
    old.dispose()


def test_opening_again_changes_nothing(engine: Engine) -> None:
    again = open_database(engine.url.render_as_string())
    assert tables(again) == TABLES
    again.dispose()


def test_several_processes_can_open_a_new_database_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def open_it(attempt: int) -> None:
        together.wait()
        open_database(f"sqlite:///{tmp_path / str(attempt)}.db").dispose()

    with ThreadPoolExecutor(4) as pool:
        for attempt in range(5):
            for done in [pool.submit(open_it, attempt) for _ in range(4)]:
                done.result()


def test_a_writer_that_reads_first_waits_for_the_writer_before_it(engine: Engine) -> None:
    together = threading.Barrier(4)

    def count_up() -> None:
        together.wait()
        for _ in range(5):
            with begin_writing(engine) as session:
                number = session.scalar(text("SELECT user_version FROM pragma_user_version"))
                session.execute(text(f"PRAGMA user_version = {number + 1}"))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count_up) for _ in range(4)]:
            done.result()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA user_version").scalar() == 20


def test_sqlite_is_safe_for_several_processes(engine: Engine) -> None:
    with engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 60_000}


def test_a_row_without_its_duel_run_is_refused(each_engine: Engine) -> None:
    mark = FailedCheckRow(
        duel_run="0" * 16,
        suite="s",
        expectation="e",
        reason="r",
        severity="critical",
        checked_at=datetime.now(UTC),
    )
    no_parent = pytest.raises(IntegrityError, match=r"(?i)foreign key")
    with no_parent, begin_writing(each_engine) as session:
        session.add(mark)


def test_a_failed_write_leaves_nothing(each_engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="half-way"), begin_writing(each_engine) as session:
        session.execute(text("DROP TABLE ratio"))
        raise RuntimeError("half-way")
    assert tables(each_engine) == TABLES


def test_a_server_that_is_away_or_ends_a_connection_is_unreachable(postgres_server: str) -> None:
    engine = open_database(make_database(postgres_server, "unreachable"))
    ends = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with engine.connect() as held:
        with engine.connect() as other:
            other.execute(ends)
        with pytest.raises(OperationalError) as ended:
            held.execute(text("SELECT 1"))
    assert is_unreachable(ended.value)
    engine.dispose()
    with pytest.raises(UserError) as refused:
        open_database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert is_unreachable(refused.value)


def test_what_another_try_does_not_change_is_not_unreachable(engine: Engine) -> None:
    with pytest.raises(OperationalError) as wrong, engine.connect() as connection:
        connection.execute(text("SELECT nothing FROM nowhere"))
    assert not is_unreachable(wrong.value)
    assert not is_unreachable(UserError("wanted another database"))


def test_times_come_back_in_utc_and_need_a_zone() -> None:
    kind, dialect = UtcDateTime(), postgresql.dialect()
    eastern = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=-5)))
    assert kind.process_bind_param(eastern, dialect) == datetime(2026, 1, 2, 8, tzinfo=UTC)
    assert kind.process_result_value(datetime(2026, 1, 2, 8), dialect) == eastern
    assert kind.process_result_value(eastern, dialect) == eastern
    assert kind.process_bind_param(None, dialect) is None
    assert kind.process_result_value(None, dialect) is None
    with pytest.raises(AssertionError, match="wanted an aware time"):
        kind.process_bind_param(datetime(2026, 1, 2, 8), dialect)


def test_postgresql_can_hold_the_tables() -> None:
    dialect = postgresql.dialect()
    for table in Base.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        names = [str(each.name) for each in (*table.indexes, *table.constraints)]
        for index in table.indexes:
            assert "CREATE INDEX" in str(CreateIndex(index).compile(dialect=dialect))
        assert [name for name in names if len(name) > 63] == []


def test_the_builder_of_documents_is_not_shared_between_documents() -> None:
    assert make_document() == make_document()
    assert make_document()["contenders"] is not make_document()["contenders"]


def test_a_text_that_is_no_url_is_bad_input() -> None:
    with pytest.raises(UserError, match=r"SQLAlchemy URL .* correct the URL, or DEAD"):
        open_database("nonsense")
