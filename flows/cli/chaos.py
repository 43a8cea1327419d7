"""The command `deadheat chaos`: nights that are disturbed on purpose."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from flows.chaos.runner import FAULTS, choose_faults, make_template, run_trials, tabulate
from flows.chaos.trial import Layer
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows, report_line

_TIMES = "Repeat each fault so often, at random moments (default 1)."
_SEED = "Choose other moments and other files."
_LAYER = "Run duels and ingest alone (measuring), or a whole `deadheat run` (command)."


def chaos(
    only: Annotated[str | None, option("--only", "TEXT", "Run only faults with this text.")] = None,
    layer: Annotated[Layer, option("--layer", "LAYER", _LAYER)] = "measuring",
    times: Annotated[int, option("--times", "COUNT", _TIMES, min=1, max=1000)] = 1,
    seed: Annotated[int, option("--seed", "NUMBER", _SEED)] = 0,
    short: Annotated[bool, typer.Option("--short", help="Leave out what takes minutes.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Show the faults, and end.")] = False,
    as_json: options.Json = False,
) -> None:
    """Kill, stop, fill and damage nights of the empty step, and count what is lost.

    Each trial has a state folder of its own: a night with a fault at a random moment, then the same
    command again. Exit code 1 if anything is lost, doubled or left running, if a night hangs, or
    if the same command does not recover.
    """
    if list_all:
        rows = [{"fault": each.name, "layers": list(each.layers)} for each in FAULTS]
        print_json(rows) if as_json else print_rows(rows, ("fault", "layers"), title="faults")
        return
    faults = choose_faults(layer, only, short=short)
    with tempfile.TemporaryDirectory(prefix="deadheat-chaos-") as folder:
        template = make_template(layer, Path(folder))
        where = Path(folder) / "trials"
        outcomes = run_trials(
            template, faults, times=times, seed=seed, folder=where, report=report_line
        )
    rows, bad = tabulate(outcomes), sum(not each.is_good for each in outcomes)
    if as_json:
        print_json({"layer": layer, "seed": seed, "rows": rows, "bad": bad})
    else:
        print_rows(rows, [*rows[0]], title=f"{len(outcomes)} faults on the layer {layer}")
        print_line(f"{len(outcomes) - bad} of {len(outcomes)} nights ended well")
    if bad:
        raise typer.Exit(1)
