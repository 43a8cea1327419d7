"""Moves a database to PostgreSQL and back as Parquet, and compares every row.

It starts a PostgreSQL of the system's package. Each part reports its seconds, and the largest
memory that this process has taken so far.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchcore.errors import UserError
from benchcore.store.copies.parquet import export_tables, import_tables
from benchcore.store.copies.transfer import compare_databases
from benchcore.store.database import Engine, open_database
from flows.chaos.own_postgres import OwnPostgres
from flows.server.postgres import find_postgres


def go_round(engine: Engine, folder: Path) -> dict[str, Any]:
    """Export, import into PostgreSQL, compare; export from there, import into a new SQLite file,
    compare. What is a PostgreSQL goes to SQLite only. Raises DamagedFileError where a row differs,
    UserError without PostgreSQL."""
    parts = dict[str, dict[str, float]]()
    folder.mkdir()
    with ExitStack() as stack:
        there = engine
        if engine.dialect.name != "postgresql":
            there = open_database(stack.enter_context(serve_postgres(folder)))
            stack.callback(there.dispose)
            _move(parts, "PostgreSQL", engine, there, folder / "tables")
            _time(parts, "compare with PostgreSQL", lambda: compare_databases(engine, there))
        back = open_database(f"sqlite:///{folder / 'back.db'}", made_up=True)
        stack.callback(back.dispose)
        counts = _move(parts, "SQLite", there, back, folder / "tables")
        _time(parts, "compare with the new SQLite", lambda: compare_databases(engine, back))
    return {"rows": counts, "parts": parts}


def _move(
    parts: dict[str, dict[str, float]], to: str, source: Engine, target: Engine, folder: Path
) -> dict[str, int]:
    """Over a folder that is removed again; the rows of each table."""
    of_export = _time(parts, f"export for {to}", lambda: export_tables(source, folder, _print))
    of_import = _time(parts, f"import into {to}", lambda: import_tables(folder, target, _print))
    assert of_export == of_import
    size = sum(each.stat().st_size for each in folder.iterdir())
    parts[f"export for {to}"]["mb"] = round(size / 1e6)
    shutil.rmtree(folder)
    return of_export


def _time(
    parts: dict[str, dict[str, float]], name: str, call: Callable[[], dict[str, int]]
) -> dict[str, int]:
    began, cpu = time.perf_counter(), time.process_time()
    counts = call()
    parts[name] = {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }
    _print(f"{name}: {sum(counts.values())} rows, {parts[name]}")
    return counts


def _print(text: str) -> None:
    print(text, flush=True)


@contextmanager
def serve_postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL of the system's package, while the body runs."""
    installed = find_postgres()
    if isinstance(installed, str):
        raise UserError(f"wanted a PostgreSQL to move the rows to, but {installed}; install it")
    server = OwnPostgres(folder, installed)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
