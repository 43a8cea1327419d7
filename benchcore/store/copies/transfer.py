"""Copies a database to another one, SQLite or PostgreSQL, and finds damage in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    cast,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.types import UserDefinedType

from benchcore.errors import DamagedFileError, UserError
from benchcore.store.copies.parts import list_incomplete
from benchcore.store.database import begin_reading, begin_writing, continue_numbers, open_database
from benchcore.store.models import Base

ROWS = 500
"""Rows that are read and written at once: 500 of the widest take some 5 MB."""

Rows = list[dict[str, Any]]
Reader = Callable[[Table], Iterator[Rows]]
"""Reads a table's rows, in parts, a dict of its columns each. JSON is its text."""


class _JsonText(UserDefinedType[str]):
    """A column of JSON whose text is read and written as it is: to parse it takes most of the time,
    and its texts are equal where its values are."""

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        """The type in SQL, which is that of `JSON`."""
        return "JSON"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        """The column cast to text, as PostgreSQL's driver would parse JSON."""
        return cast(colexpr, Text)


@cache
def _as_text(table: Table) -> Table:
    """The table with its JSON as text."""
    found = table.to_metadata(MetaData())
    for column in found.columns:
        if isinstance(column.type, JSON):
            column.type = _JsonText()
    return found


def copy_database(
    source: Engine, target: Engine, report: Callable[[str], None] = lambda text: None
) -> dict[str, int]:
    """`fill_database` with every row of another one, as they were at one moment: a night may write
    to it meanwhile."""
    with begin_reading(source) as reading:
        return fill_database(lambda table: read_parts(reading, table), target, report)


def fill_database(
    read: Reader, target: Engine, report: Callable[[str], None] = lambda text: None
) -> dict[str, int]:
    """Write rows to a database without rows, read all back, and compare; rows of each table.

    One transaction: interrupted, it leaves the target empty. Raises UserError if the target holds
    rows, and DamagedFileError if what was read back differs.
    """
    tables = Base.metadata.sorted_tables
    counts = dict.fromkeys((table.name for table in tables), 0)
    with begin_writing(target) as session:
        writing = session.connection()
        _check_empty(writing, tables)
        for table in tables:
            for rows in read(table):
                _write(writing, table, rows)
                counts[table.name] += len(rows)
            continue_numbers(writing, table)
            _compare(read, lambda table: read_parts(writing, table), table)
            report(f"{table.name}: {counts[table.name]} rows")
    return counts


def _write(connection: Connection, table: Table, rows: Rows) -> None:
    """PostgreSQL takes rows as text in a tenth of the time of an INSERT."""
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver != "psycopg":
        connection.execute(insert(_as_text(table)), rows)
        return
    quote = dialect.identifier_preparer.quote
    names = ", ".join(map(quote, rows[0]))
    statement = f"COPY {quote(table.name)} ({names}) FROM STDIN"
    raw: Any = connection.connection.driver_connection
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row.values())
    except dialect.loaded_dbapi.Error as error:
        raise OperationalError(statement, None, error) from error


def copy_to_url(source: Engine, url: str, report: Callable[[str], None]) -> dict[str, int]:
    """`copy_database` to the database of a URL, whose tables are made."""
    target = open_database(url)
    try:
        if target.url == source.url:
            raise UserError(
                f"wanted another database than the one that is copied, got {_show(target)}; name a "
                "new file, or an empty database"
            )
        return copy_database(source, target, report)
    finally:
        target.dispose()


def compare_databases(ours: Engine, theirs: Engine) -> dict[str, int]:
    """Compare every row of two databases, of either engine; rows of each table. Raises
    DamagedFileError for the first that differs."""
    counts = dict[str, int]()
    with begin_reading(ours) as left, begin_reading(theirs) as right:
        for table in Base.metadata.sorted_tables:
            _compare(
                lambda table: read_parts(left, table),
                lambda table: read_parts(right, table),
                table,
            )
            counts[table.name] = left.scalar(select(func.count()).select_from(table)) or 0
    return counts


def find_damage(engine: Engine) -> list[str]:
    """Damage of a database, a line each: pages, references, duel runs that lack rows."""
    with begin_reading(engine) as connection:
        found = [*_check_file(connection)] if engine.dialect.name == "sqlite" else []
        return [*found, *_describe_incomplete(connection)]


def _check_empty(connection: Connection, tables: list[Table]) -> None:
    full = [each.name for each in tables if connection.scalar(select(each).limit(1)) is not None]
    if full:
        raise UserError(
            f"wanted a database without rows, got one with rows in {', '.join(full)}; name a new "
            "file, or an empty database"
        )


def read_parts(connection: Connection, table: Table) -> Iterator[Rows]:
    """A table's rows, in the order of their keys."""
    query = select(found := _as_text(table)).order_by(*found.primary_key)
    streamed = connection.execute(query, execution_options={"stream_results": True})
    names = [*streamed.keys()]
    for part in streamed.partitions(ROWS):
        yield [dict(zip(names, row, strict=True)) for row in part]


def _compare(read: Reader, written: Reader, table: Table) -> None:
    """Texts may sort in another order there, so rows are matched by their keys."""
    pairs = zip_longest(read(table), written(table), fillvalue=[])
    ours: dict[tuple[Any, ...], Any] = {}
    theirs: dict[tuple[Any, ...], Any] = {}
    for left, right in pairs:
        if left == right and not ours and not theirs:
            continue
        ours |= {_key(table, row): row for row in left}
        theirs |= {_key(table, row): row for row in right}
        for key in ours.keys() & theirs.keys():
            if ours.pop(key) != theirs.pop(key):
                raise _differs(table, key)
    for key in (*ours, *theirs):
        raise _differs(table, key)


def _differs(table: Table, key: tuple[Any, ...]) -> DamagedFileError:
    return DamagedFileError(
        f"wanted the copy to equal what was copied, but row {key} of {table.name!r} differs; "
        "nothing was written. Run `deadheat db check`"
    )


def _key(table: Table, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in table.primary_key)


def _check_file(connection: Connection) -> Iterator[str]:
    for row in connection.execute(text("PRAGMA integrity_check")):
        if row[0] != "ok":
            yield f"damaged file: {row[0]}"
    for table, number, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"row {number} of {table!r} refers to a row of {parent!r} that is not there"


def _describe_incomplete(connection: Connection) -> Iterator[str]:
    for each in list_incomplete(connection):
        yield f"duel run {each.duel_run} has {each.found} of the {each.wanted} rows of its document"


def _show(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=True)
