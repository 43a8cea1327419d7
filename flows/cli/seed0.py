"""The command `deadheat seed0`: one of sixteen comparisons, and its two scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchcore.planning.profiles import seed0 as seed0_profile
from benchcore.planning.requests import USUAL, Placement
from benchcore.planning.seed0 import find_cell
from benchcore.running.plans import draft_named
from benchcore.running.seed0_scripts import choose_device, write_scripts
from benchcore.running.sites import load_site
from benchcore.state import open_state
from flows.cli import options
from flows.cli.in_process import measure_plan
from flows.cli.nightly import print_outcome
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_json, print_line

_BENCHMARK = "Measure this benchmark: mnist, cifar10, nlp or gnn."
_USE_CASE = (
    "Measure this use case: 1 trains on one device, 2 on two; 3 computes per-sample gradients on "
    "one device, 4 on two."
)
_FOLDER = "Write both scripts into this folder."
_DRY_RUN = "Write both scripts, and measure nothing."


@expand_groups
def seed0(
    benchmark: Annotated[str, option("--benchmark", "NAME", _BENCHMARK)],
    use_case: Annotated[int, option("--use-case", "NUMBER", _USE_CASE)],
    scripts: Annotated[Path, option("--scripts", "FOLDER", _FOLDER)] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False,
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Compare JAX and PyTorch on one of sixteen combinations: a benchmark and a use case.

    Also writes a script per framework, which measures that framework alone. On a Slurm site the
    scripts are for `sbatch`, and the duel is one job. The device is detected.
    """
    cell, site = find_cell(benchmark, use_case), load_site(placement.site)
    device = choose_device(site, placement.pool)
    root = str(state.expanduser().absolute())
    written = write_scripts(cell, site, placement.pool, root, scripts)
    if dry_run:
        if as_json:
            print_json({"scripts": [str(path) for path in written], "device": device})
        for path in () if as_json else written:
            print_line(f"wrote {path}")
        return
    opened = open_state(state)
    profile = seed0_profile([cell], device, controls=())
    drafted = draft_named(profile, f"seed0-{cell.name}", placement, opened)
    print_outcome(measure_plan(drafted, opened, placement.pool), as_json)
