"""The command `deadheat plants`: unfair sides that must not count, and which guard refuses each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchcore.errors import UserError
from benchcore.state import open_state
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_rows, report_line
from tasks.unfair.automatic_plants import (
    GUARD_COLUMNS,
    list_automatic,
    list_planted_workloads,
    tabulate,
)
from tasks.unfair.automatic_plants import sample as take_sample
from tasks.unfair.framework_servers import serve_frameworks
from tasks.unfair.plants import PLANTS, Outcome, Plant, provision_sides, read_plants, run_plants


def plants(
    only: Annotated[
        str | None,
        options.option("--only", "TEXT", "Run only sides whose name contains this (default: all)."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="Run the automatic unfair sides of this workload (or: all), not those of --file.",
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Run each kind once per workload, not in every case."),
    ] = False,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Read the unfair sides from this file (default: tests/plants/plants.toml).",
            show_default=False,
        ),
    ] = PLANTS,
    jax: options.Jax = "jax",
    torch: options.Torch = "torch",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Run unfair sides against fair ones: each must be refused by its own guard.

    Exit code 1 if an unfair side counts, if another guard refuses it, or if a fair side is
    refused. --workload wraps unfair programs around a workload's own, in its tiny cases. Runs on
    the CPU; stores nothing.
    """
    available = read_plants(file) if workload is None else _list_automatic(workload, sample)
    chosen = [plant for plant in available if only is None or only in plant.name]
    if not chosen:
        raise UserError(
            f"wanted a part of a name, got {only!r}, which none of {workload or file} has; "
            "run 'deadheat plants' without --only to see all"
        )
    environments = provision_sides(open_state(state), {"jax": jax, "torch": torch}, report_line)
    outcomes: list[Outcome] = []
    rows: list[dict[str, str]] = []
    with (
        tempfile.TemporaryDirectory(prefix="deadheat-plants-") as folder,
        serve_frameworks() as servers,
    ):
        for outcome in run_plants(chosen, environments, Path(folder), report_line, servers):
            outcomes.append(outcome)
            rows.append(_describe(outcome))
            report_line(_summarize(rows[-1]))
    failed = sum(not each.as_expected for each in outcomes)
    if as_json:
        by_guard = {} if workload is None else {"by_guard": tabulate(outcomes)}
        print_json({"sides": rows, "failed": failed, **by_guard})
    else:
        columns = ["case", "side", "what is unfair", "refused because", "as expected"]
        print_rows(rows, columns, title="unfair sides")
        if workload is not None:
            counted = [
                {name: str(cell) for name, cell in row.items()} for row in tabulate(outcomes)
            ]
            print_rows(counted, ["case", *GUARD_COLUMNS], title="unfair sides refused, by guard")
        print_line(f"{len(rows) - failed} of {len(rows)} sides as expected")
    if failed:
        raise typer.Exit(1)


def _list_automatic(workload: str, sampled: bool) -> list[Plant]:
    names = list_planted_workloads() if workload == "all" else [workload]
    plants = [plant for name in names for plant in list_automatic(name)]
    return sorted(take_sample(plants) if sampled else plants, key=lambda plant: plant.duel)


def _describe(outcome: Outcome) -> dict[str, str]:
    plant = outcome.plant
    reason = outcome.refused_by or (outcome.reasons[0] if outcome.reasons else "")
    return {
        "case": " ".join(outcome.duel),
        "side": plant.framework if plant else outcome.contender.removeprefix("right-"),
        "what is unfair": plant.name if plant else "",
        "refused because": reason[:100],
        "as expected": "yes" if outcome.as_expected else "NO",
    }


def _summarize(row: dict[str, str]) -> str:
    """A line that is printed while others still run: an interrupted command has reported these."""
    found = "as expected" if row["as expected"] == "yes" else "NOT as expected"
    unfair = row["what is unfair"] or "the fair side"
    return f"  {found}: {row['side']}, {unfair}: {row['refused because'] or 'counts'}"
