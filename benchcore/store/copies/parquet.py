"""Writes a database as Parquet, a file for each table, and fills an empty database from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, Boolean, Double, Engine, Integer, String, Table

from benchcore.errors import DamagedFileError, UserError
from benchcore.protocol import write_json
from benchcore.store.copies.transfer import ROWS, Rows, fill_database, read_parts
from benchcore.store.database import begin_reading, newest_revision
from benchcore.store.models import Base, UtcDateTime

if TYPE_CHECKING:
    import pyarrow

MANIFEST = "tables.json"
"""Written last: a folder without it was not finished."""


def export_tables(
    source: Engine, folder: Path, report: Callable[[str], None] = lambda text: None
) -> dict[str, int]:
    """Write every table to FOLDER/TABLE.parquet, in one transaction; rows of each table.

    Columns that hold JSON become its text, and times are in UTC. Pages have checksums.
    Raises UserError if the folder holds files, or pyarrow is missing.
    """
    parquet = import_parquet()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"wanted a new or empty folder, got {folder}; name another")
    folder.mkdir(parents=True, exist_ok=True)
    counts = dict[str, int]()
    with begin_reading(source) as reading:
        for table in Base.metadata.sorted_tables:
            schema = _make_schema(table)
            path = folder / f"{table.name}.parquet"
            with parquet.ParquetWriter(path, schema, write_page_checksum=True) as writer:
                counts[table.name] = 0
                for rows in read_parts(reading, table):
                    writer.write_table(_make_table(rows, schema))
                    counts[table.name] += len(rows)
            report(f"{table.name}: {counts[table.name]} rows")
    write_json(folder / MANIFEST, {"revision": newest_revision(), "rows": counts})
    return counts


def import_tables(
    folder: Path, target: Engine, report: Callable[[str], None] = lambda text: None
) -> dict[str, int]:
    """Fill a database without rows from the files of `export_tables`; rows of each table.

    Raises UserError if the folder is not one of these, or of another version of the tables. Raises
    DamagedFileError if a file is damaged, or has other rows than were written.
    """
    rows = _read_manifest(folder)
    parquet = import_parquet()

    def read(table: Table) -> Iterator[Rows]:
        path = folder / f"{table.name}.parquet"
        try:
            yield from _read_file(parquet, path, rows.get(table.name, 0))
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise DamagedFileError(
                f"wanted the rows of {table.name!r}, but {path} can't be read: {error}; nothing "
                "was written. Export the tables again"
            ) from error

    return fill_database(read, target, report)


def _read_manifest(folder: Path) -> dict[str, int]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        revision, rows = manifest["revision"], dict[str, int](manifest["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"wanted a folder that `deadheat db export` wrote, but {folder / MANIFEST} can't be "
            f"read ({error}); name such a folder"
        ) from error
    if revision != newest_revision():
        raise UserError(
            f"wanted tables of revision {newest_revision()}, got {folder} of revision {revision}; "
            "import it with the version of Dead Heat that wrote it"
        )
    return rows


def _read_file(parquet: Any, path: Path, num_rows: int) -> Iterator[Rows]:
    found = 0
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(ROWS):
            rows = batch.to_pylist()
            found += len(rows)
            yield rows
    if found != num_rows:
        raise ValueError(f"wanted {num_rows} rows, got {found}")


def _make_schema(table: Table) -> pyarrow.Schema:
    import pyarrow

    types = (
        (JSON, pyarrow.string()),
        (UtcDateTime, pyarrow.timestamp("us", tz="UTC")),
        (Boolean, pyarrow.bool_()),
        (Integer, pyarrow.int64()),
        (Double, pyarrow.float64()),
        (String, pyarrow.string()),
    )
    return pyarrow.schema(
        [
            (column.name, next(found for kind, found in types if isinstance(column.type, kind)))
            for column in table.columns
        ]
    )


def _make_table(rows: Rows, schema: pyarrow.Schema) -> pyarrow.Table:
    import pyarrow

    return pyarrow.Table.from_pylist(rows, schema=schema)


def import_parquet() -> Any:
    """`pyarrow.parquet`. Raises UserError if it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "wanted pyarrow for Parquet, found none; run `uv sync --extra parquet` in the "
            "repository"
        ) from error
    return pyarrow.parquet
