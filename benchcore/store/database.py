"""Opens the database and brings its tables up to date: SQLite by default, or PostgreSQL."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    func,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from benchcore.errors import DamagedFileError, UserError
from benchcore.state import hold_lock
from benchcore.store.models import Base

# `Engine` is for modules that hold one but may not import SQLAlchemy.
__all__ = [
    "Engine",
    "begin_reading",
    "begin_writing",
    "check_database",
    "continue_numbers",
    "count_rows",
    "database_file",
    "downgrade",
    "empty_database",
    "is_database_error",
    "is_disk_full",
    "newest_revision",
    "open_database",
    "upgrade",
]

_BUSY_TIMEOUT_MS = 60_000
_MIGRATION_LOCK = 0xDEAD_4EA7
"""Key of PostgreSQL's advisory lock around a migration."""
_WATCHED = {
    "connect_timeout": 30,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Parameters of PostgreSQL's client, unless the URL has others: a server whose machine is gone is
given up after a minute, not after two hours."""
_LONGEST_IDLE_MS = 600_000
"""PostgreSQL ends a transaction that is left open for so long, as by a suspended process: others
wait for its locks."""
_IDLE_TOO_LONG = "25P03"
"""PostgreSQL's state of such a transaction."""


def open_database(url: str, *, made_up: bool = False) -> Engine:
    """An engine whose tables are at the newest revision; several processes may open at once. What
    is `made_up` can be made again, so SQLite does not wait until it is on the disk.

    Raises UserError if the database can't be reached, or was made by another version.
    """
    engine = _make_engine(url)
    if engine.dialect.name != "sqlite":
        _bring_up_to_date(engine)
        return engine
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    if made_up:
        event.listen(engine, "connect", _skip_waiting)
    # Switching a new file to WAL fails at once while another connection has it open, whatever the
    # busy timeout, so the first process does it alone.
    with hold_lock(Path(f"{engine.url.database}.lock")):
        _bring_up_to_date(engine)
    return engine


def _bring_up_to_date(engine: Engine) -> None:
    with _reached(engine) as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(_alembic_config())
    if current is not None and current not in {each.revision for each in scripts.walk_revisions()}:
        raise UserError(
            f"wanted a database of this version, got {engine.url.render_as_string()} of another "
            f"one (revision {current}). Move it away, or set DEADHEAT_DATABASE_URL to a new one; "
            "then run `deadheat rebuild`, which makes it again from the documents"
        )
    if current is None:
        _create_tables(engine)
    elif current != scripts.get_current_head():
        upgrade(engine)


def _create_tables(engine: Engine) -> None:
    """The newest tables at once, as Alembic's cookbook makes a database from scratch: a sixth of
    the time of all migrations."""
    with _begin_migrating(engine) as connection:
        if MigrationContext.configure(connection).get_current_revision() is None:
            _create_tables_over(connection)


def _create_tables_over(connection: Connection) -> None:
    Base.metadata.create_all(connection, checkfirst=False)
    command.stamp(_alembic_config(connection), "head")


@contextmanager
def empty_database(engine: Engine) -> Iterator[Connection]:
    """Drop all tables and create the newest ones. What is written over the connection is in the
    same transaction: interrupted, the database stays as it was."""
    with _begin_migrating(engine) as connection:
        command.downgrade(_alembic_config(connection), "base")
        _create_tables_over(connection)
        yield connection


def newest_revision() -> str:
    """The revision of the tables that this version makes."""
    head = ScriptDirectory.from_config(_alembic_config()).get_current_head()
    assert head is not None
    return head


def check_database(url: str) -> str:
    """Describe the database in a few words, without writing to it.

    Raises UserError if it can't be reached.
    """
    engine = _make_engine(url)
    path = Path(engine.url.database or "")
    if engine.dialect.name == "sqlite" and not path.exists():
        return f"SQLite, will be created as {path}"
    with _reached(engine) as connection:
        connection.execute(text("SELECT 1"))
    return f"{engine.dialect.name} is reachable"


def count_rows(url: str) -> dict[str, int]:
    """The number of rows of every table, which changes with whatever is stored.

    Raises UserError if the database can't be reached.
    """
    engine = _make_engine(url)
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists():
        return {}
    with _reached(engine) as connection:
        tables = inspect(connection).get_table_names()
        counts = {each: select(func.count()).select_from(table(each)) for each in tables}
        return {each: connection.scalar(counts[each]) or 0 for each in tables}


def _make_engine(url: str) -> Engine:
    try:
        # Less than half of the time of the standard library's.
        engine = create_engine(url, json_serializer=_dump_json, json_deserializer=orjson.loads)
    except (ArgumentError, ImportError, ValueError) as error:
        raise UserError(
            "wanted a database as an SQLAlchemy URL such as sqlite:////folder/file.db or "
            f"postgresql+psycopg://user@host/name, but {error}; correct the URL, or "
            "DEADHEAT_DATABASE_URL"
        ) from error
    if engine.driver == "psycopg":
        event.listen(engine, "do_connect", _watch_server)
        event.listen(engine, "connect", _limit_idle_time)
    return engine


def _watch_server(
    _dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]
) -> None:
    for name, value in _WATCHED.items():
        parameters.setdefault(name, value)


def _limit_idle_time(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = {_LONGEST_IDLE_MS}")
    cursor.close()
    connection.commit()


def _dump_json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()


@contextmanager
def _reached(engine: Engine) -> Iterator[Connection]:
    try:
        with engine.connect() as connection:
            yield connection
    except OperationalError as error:
        if is_disk_full(error):
            raise
        raise UserError(
            f"wanted the database {engine.url.render_as_string(hide_password=True)}, but "
            f"{error.orig}; start it, or correct the URL or DEADHEAT_DATABASE_URL"
        ) from error


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Move the tables up to a revision, all the way or not at all."""
    with _begin_migrating(engine) as connection:
        command.upgrade(_alembic_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Move the tables down to a revision ("base" drops them), all the way or not at all."""
    with _begin_migrating(engine) as connection:
        command.downgrade(_alembic_config(connection), revision)


@contextmanager
def _begin_migrating(engine: Engine) -> Iterator[Connection]:
    """One transaction around a migration; it ends by checking the references on SQLite.

    SQLite alters a table by copying and dropping it. With foreign keys on, that would delete
    what refers to its rows. They can't be switched within a transaction, so the connection is
    closed afterwards. Raises DamagedFileError if a row refers to one that is not there.
    """
    options: dict[str, Any] = {"sqlite_begin": "IMMEDIATE", "sqlite_foreign_keys": "OFF"}
    with engine.execution_options(**options).connect() as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        yield connection
        if connection.dialect.name == "sqlite":
            connection.detach()
            _check_references(connection)


def _check_references(connection: Connection) -> None:
    for owner, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        raise DamagedFileError(
            f"wanted to migrate {connection.engine.url.render_as_string()}, but row {row} of "
            f"{owner!r} refers to a row of {parent!r} that is not there; nothing was changed. Run "
            "`deadheat rebuild`, which makes the database again from the documents"
        )


@contextmanager
def begin_writing(engine: Engine) -> Iterator[Session]:
    """One transaction that writes. On SQLite it waits for its turn before it reads anything,
    because a reader that becomes a writer fails at once if another process has written."""
    with Session(engine.execution_options(sqlite_begin="IMMEDIATE")) as session, session.begin():
        yield session


@contextmanager
def begin_reading(engine: Engine) -> Iterator[Connection]:
    """One transaction that reads, and sees the rows as they were at its first query whatever others
    write meanwhile. SQLite's always do; PostgreSQL's by default see what was written since."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.execution_options(**level).connect() as connection:
        yield connection


def continue_numbers(connection: Connection, rows: Table) -> None:
    """Have PostgreSQL number new rows after those that were written with their numbers. SQLite does
    so by itself."""
    column = rows.autoincrement_column
    if connection.dialect.name == "postgresql" and column is not None:
        sequence = func.pg_get_serial_sequence(rows.name, column.name)
        first_free = func.coalesce(func.max(column), 0) + 1
        connection.execute(select(func.setval(sequence, first_free, False)))


def _alembic_config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", "benchcore.store:migrations")
    config.attributes["connection"] = connection
    return config


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Python's sqlite3 begins transactions at odd moments, and none around CREATE TABLE:
    # _begin_sqlite begins them instead.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _skip_waiting(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if "sqlite_foreign_keys" in options:
        connection.exec_driver_sql(f"PRAGMA foreign_keys = {options['sqlite_foreign_keys']}")
    connection.exec_driver_sql(f"BEGIN {options.get('sqlite_begin', 'DEFERRED')}")


def database_file(url: str) -> Path | None:
    """The file of an SQLite database; None for a server."""
    parsed = _make_engine(url).url
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    return Path(parsed.database)


def is_disk_full(error: Exception) -> bool:
    """Whether a write failed because a disk, or a quota on it, is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = error.orig if isinstance(error, OperationalError) else None
    full = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)  # no space for the index of the WAL
    return getattr(cause, "sqlite_errorcode", None) in full


def is_damaged(error: Exception) -> bool:
    """Whether a file is not a database of SQLite, or its pages are wrong."""
    cause = getattr(error, "orig", None) or error
    damaged = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return getattr(cause, "sqlite_errorcode", None) in damaged


def is_unreachable(error: Exception) -> bool:
    """Whether a database's server took no connection, or ended one."""
    cause = error.__cause__ if isinstance(error, UserError) else error
    if not isinstance(cause, DBAPIError) or isinstance(cause.orig, sqlite3.Error):
        return False
    state = getattr(cause.orig, "sqlstate", None)
    if state is None:  # it never connected
        return isinstance(cause, OperationalError)
    return state.startswith(("08", "57P", _IDLE_TOO_LONG))


def is_database_error(error: Exception) -> bool:
    """Whether a database refused, or did not answer."""
    return isinstance(error, DBAPIError | sqlite3.Error)
