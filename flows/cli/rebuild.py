"""The command `deadheat rebuild`: the database again, from documents alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from benchcore.state import open_state
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, report_line

_FromOption = Annotated[
    list[Path] | None,
    option("--from", "FOLDER", "Add the documents of another folder, such as results/MACHINE."),
]


def rebuild(
    folders: _FromOption = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Rebuild the database from documents alone.

    Restores rows, checks, ratios, suspicions, events and what people did about them. An SQLite file
    is replaced once the new one is complete; the old one stays as `.old`. Exit code 1 if a document
    was refused.
    """
    from data_checks.rebuild import rebuild_database  # Great Expectations takes seconds

    done = rebuild_database(open_state(state), report_line, folders or ())
    if as_json:
        print_json(dataclasses.asdict(done))
    else:
        print_line(f"{done.duel_runs} duel runs of {done.campaigns} campaigns")
        for reason in done.refused:
            print_line(reason)
        if done.kept:
            print_line(f"The previous database is {done.kept}")
    if done.refused:
        raise typer.Exit(1)
