"""The command `deadheat equivalence`: whether two environments compute the same, and where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from benchcore.experiments.proofs import EquivalenceRequest, draft_proofs, run_proofs
from benchcore.running.equivalence import FULL_SEEDS, proof_title
from benchcore.state import open_state
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import (
    ERR,
    print_error,
    print_json,
    print_line,
    print_rows,
    report_line,
)

_SHOWN = (
    TextColumn("{task.description}"),
    *(BarColumn(), TaskProgressColumn(), TimeElapsedColumn()),
)
_COLUMNS = (
    *("use_case", "quantity", "reference_error", "reference_bound"),
    *("a_error", "a_bound", "b_error", "b_bound", "passed"),
)
_PRECISION = "Prove in this precision; repeat for more (default: all of the workload's cases)."
_VERSION = "Prove this version; repeat for more (default: jax@newest, torch@newest)."


def equivalence(
    model: Annotated[
        str | None, options.argument("WORKLOAD", "Name of the workload (or --all).")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Prove every workload.")] = False,
    precision: Annotated[list[str] | None, option("--precision", "NAME", _PRECISION)] = None,
    version: Annotated[list[str] | None, option("--version", "VERSION", _VERSION)] = None,
    seeds: Annotated[
        int, option("--seeds", "COUNT", "Prove with this many seeds.", min=1, max=100)
    ] = FULL_SEEDS,
    checkpoint: options.Checkpoint = None,
    repeat: Annotated[bool, typer.Option("--repeat", help="Repeat proofs that exist.")] = False,
    python: options.Python = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Prove that versions compute the same function, against float64. Exit code 1 if not."""
    request = EquivalenceRequest(
        workload=model,
        everything=everything,
        precisions=precision or (),
        versions=version or ("jax@newest", "torch@newest"),
        num_seeds=seeds,
        checkpoint=checkpoint,
        python=python,
    )
    opened = open_state(state)
    wanted = draft_proofs(request, opened, report_line)
    try:
        with Progress(*_SHOWN, console=ERR, transient=True) as bar:
            task = bar.add_task("", total=len(wanted))
            rows = run_proofs(
                wanted,
                opened,
                report_line,
                lambda done, title: bar.update(task, completed=done, description=title),
                repeat=repeat,
            )
    except KeyboardInterrupt:
        print_error("interrupted; rerun the same command to resume")
        raise typer.Exit(130) from None
    _print(rows, as_json)
    if not precision and wanted[0].device == "cpu" and not as_json:
        print_line("note: tf32 needs a GPU, and was left out")
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


def _print(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"proven": all(row["passed"] for row in rows), "rows": rows})
        return
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        named = tuple(row[key] for key in ("workload", "precision", "a", "b"))
        tables.setdefault(named, []).append(row)
    for (workload, precision, a, b), of_pair in tables.items():
        named = proof_title(workload, of_pair[0]["checkpoint"], precision)
        title = f"{named}: errors of a = {a} and b = {b} against float64"
        print_rows(of_pair, _COLUMNS, title=title)
    for row in rows:
        if not row["passed"]:
            where = f"; first in {row['first_drift']}" if row["first_drift"] else ""
            case = f"{row['workload']} {row['use_case']} in {row['precision']}"
            print_line(f"{case}: {row['reason']}{where}")
