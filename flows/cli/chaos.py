"""The command `deadheat chaos`: fault injection."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from flows.chaos.runner import FAULTS, choose_faults, make_template, run_trials, tabulate
from flows.chaos.trial import Layer
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows, report_line

_TIMES = "Repeat each fault this many times, at random moments."
_SEED = "Choose the moments and files by this seed."
_SHORT = "Leave out faults that take minutes."
_LIST = "Show the faults, and inject none."
_LAYER = (
    "Run duels and ingest alone (measuring); a whole `deadheat run` with a server (command), in a "
    "local Slurm (slurm), or with `deadheat up` (up); or build an environment (environments)."
)


def chaos(
    only: Annotated[
        str | None,
        option("--only", "TEXT", "Run only faults whose name contains this (default: all)."),
    ] = None,
    layer: Annotated[Layer, option("--layer", "LAYER", _LAYER)] = "measuring",
    times: Annotated[int, option("--times", "COUNT", _TIMES, min=1, max=1000)] = 1,
    seed: Annotated[int, option("--seed", "NUMBER", _SEED)] = 0,
    short: Annotated[bool, typer.Option("--short", help=_SHORT)] = False,
    list_all: Annotated[bool, typer.Option("--list", help=_LIST)] = False,
    as_json: options.Json = False,
) -> None:
    """Inject faults into nights of the workload noop, and count what is lost.

    Each trial has its own state folder: a night with a fault at a random moment, then the same
    command again. Exit code 1 if anything is lost, doubled or left running, if a night hangs, or
    if the same command does not recover.
    """
    if list_all:
        rows = [{"fault": each.name, "layers": list(each.layers)} for each in FAULTS]
        print_json(rows) if as_json else print_rows(rows, ("fault", "layers"), title="faults")
        return
    faults = choose_faults(layer, only, short=short)
    with tempfile.TemporaryDirectory(prefix="deadheat-chaos-") as folder, ExitStack() as stack:
        template = make_template(layer, Path(folder), stack)
        where = Path(folder) / "trials"
        outcomes = run_trials(
            template, faults, times=times, seed=seed, folder=where, report=report_line
        )
    rows, bad = tabulate(outcomes), sum(not each.is_good for each in outcomes)
    if as_json:
        print_json({"layer": layer, "seed": seed, "rows": rows, "bad": bad})
    else:
        print_rows(rows, [*rows[0]], title=f"{len(outcomes)} faults on the layer {layer}")
        print_line(f"{len(outcomes) - bad} of {len(outcomes)} nights recovered")
    if bad:
        raise typer.Exit(1)
