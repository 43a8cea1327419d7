"""The commands `deadheat db`: check the database, copy it, export and import its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchcore.state import open_state
from benchcore.store.copies.parquet import export_tables, import_tables
from benchcore.store.copies.transfer import copy_to_url, find_damage
from benchcore.store.database import open_database
from flows.cli import options
from flows.cli.printing import print_json, print_line, report_line

db = typer.Typer(
    help="Check the database, copy it, export and import its tables.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@db.callback()
def _db() -> None:
    """Check the database, copy it, export and import its tables."""


@db.command()
def check(state: options.State = options.STATE, as_json: options.Json = False) -> None:
    """Find damaged pages, references to missing rows, and duel runs that lack rows.

    Exit code 1 if there are some; `deadheat rebuild` makes the database again.
    """
    found = find_damage(open_database(open_state(state).database_url))
    if as_json:
        print_json(found)
    elif found:
        for line in found:
            print_line(line)
        print_line("Run `deadheat rebuild`: it makes the database again from the documents.")
    else:
        print_line("No damage found.")
    if found:
        raise typer.Exit(1)


@db.command()
def copy(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="A new or empty database: sqlite:////backup/deadheat.db, or one of PostgreSQL.",
        ),
    ],
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Copy every row to another database, SQLite or PostgreSQL, and compare.

    If it is interrupted, the other database stays empty.
    """
    source = open_database(open_state(state).database_url)
    _print_counts(copy_to_url(source, url, _reporter(as_json)), "copied, and equal", as_json)


@db.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Write every table to a folder as Parquet, which other programs read, too."""
    source = open_database(open_state(state).database_url)
    _print_counts(export_tables(source, folder, _reporter(as_json)), "exported", as_json)


@db.command("import")
def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that `deadheat db export` wrote.")
    ],
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Fill the state's database, which must be new or empty, with exported tables, and compare.

    If it is interrupted, the database stays empty.
    """
    target = open_database(open_state(state).database_url)
    counts = import_tables(folder, target, _reporter(as_json))
    _print_counts(counts, "imported, and equal", as_json)


def _reporter(as_json: bool) -> Callable[[str], None]:
    return (lambda text: None) if as_json else report_line


def _print_counts(counts: dict[str, int], done: str, as_json: bool) -> None:
    if as_json:
        print_json(counts)
    else:
        print_line(f"{sum(counts.values())} rows {done}")
