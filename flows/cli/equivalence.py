"""The command `deadheat equivalence`: whether two environments compute the same, and where not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any, get_args

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.planning import catalog
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.program import Precision
from benchcore.running.duels import describe_release, find_accelerator
from benchcore.running.equivalence import (
    FULL_SEEDS,
    ProofRequest,
    ProofSide,
    proof_subject,
    proof_title,
    prove,
)
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.proofs import list_proofs
from flows.cli.options import STATE, CheckpointOption, JsonOption, PythonOption, StateOption
from flows.cli.printing import ERR, OUT, complain, print_json, print_rows

_PRECISIONS = get_args(Precision)
_SHOWN = (
    TextColumn("{task.description}"),
    *(BarColumn(), TaskProgressColumn(), TimeElapsedColumn()),
)
_COLUMNS = (
    *("use_case", "quantity", "oracles_apart", "of_at_most"),
    *("a_error", "a_bound", "b_error", "b_bound", "passed"),
)


def equivalence(
    model: Annotated[str | None, typer.Argument(help="Name of the workload (or --all).")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Prove every workload.")] = False,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            "--precision",
            metavar="NAME",
            help="Prove in this precision; repeat for more (default: all of the device).",
        ),
    ] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(
            "--version",
            metavar="VERSION",
            help="Prove this version; repeat for more (default: jax@newest, torch@newest).",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option("--seeds", metavar="COUNT", min=1, max=100, help="Follow this many seeds."),
    ] = FULL_SEEDS,
    checkpoint: CheckpointOption = None,
    anew: Annotated[bool, typer.Option("--anew", help="Repeat proofs that exist.")] = False,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Prove that versions compute the same function, against float64. Exit code 1 if not."""
    workloads = _choose_workloads(model, everything)
    on_gpu = find_accelerator() == "cuda"
    usual = [each for each in _PRECISIONS if on_gpu or each != "tf32"]
    precisions = _check_precisions(precision) or usual
    opened = open_state(state)
    sha256 = None
    if checkpoint is not None:
        if len(workloads) > 1:
            raise UserError("wanted one workload, whose weights --checkpoint has, got --all")
        sha256 = take_checkpoint(checkpoint, workloads[0], [], opened)
    sides = _provide(version or ["jax@newest", "torch@newest"], opened, python)
    everything_wanted = [
        ProofRequest(
            workload=workload,
            precision=wanted_precision,
            use_cases=catalog.proof_use_cases(workload),
            sides=sides,
            device="cuda" if on_gpu else "cpu",
            num_seeds=seeds,
            checkpoint=sha256,
        )
        for workload, wanted_precision in product(workloads, precisions)
    ]
    try:
        with Progress(*_SHOWN, console=ERR, transient=True) as progress:
            task = progress.add_task("", total=len(everything_wanted))
            rows = [
                row
                for number, wanted in enumerate(everything_wanted)
                for row in _prove(wanted, opened, progress, task, number, anew=anew)
            ]
    except KeyboardInterrupt:
        complain("interrupted; the same command goes on where this one stopped")
        raise typer.Exit(130) from None
    _tell(rows, as_json)
    if not precision and not on_gpu and not as_json:
        OUT.print("note: tf32 needs a GPU, and was left out", soft_wrap=True)
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


def _prove(
    wanted: ProofRequest, state: State, progress: Progress, task: TaskID, number: int, *, anew: bool
) -> list[dict[str, Any]]:
    """The rows of one workload in one precision, the number-th; the bar moves as they come."""
    progress.update(task, completed=number, description=wanted.title)
    began = time.monotonic()
    prove(
        wanted,
        state,
        lambda text: ERR.print(text, markup=False),
        anew=anew,
        advance=lambda share: progress.update(task, completed=number + share),
    )
    rows = _list_rows(wanted, state)
    if not rows:
        raise CampaignIncompleteError(
            f"the proof of {wanted.title} left no rows: its code changed while it ran; run it again"
        )
    num_failed = sum(not row["passed"] for row in rows)
    said = f"{num_failed} of {len(rows)} quantities failed" if num_failed else "proven"
    ERR.print(f"  {said} in {time.monotonic() - began:.0f} s", markup=False)
    return rows


def _choose_workloads(model: str | None, everything: bool) -> list[str]:
    provable = [name for name in catalog.list_workloads() if catalog.proof_use_cases(name)]
    if everything and model is None:
        return provable
    if model in provable and not everything:
        return [str(model)]
    came = "both a workload and --all" if model and everything else repr(model)
    raise UserError(
        f"wanted a workload with proof cases, or --all, got {came[:120]}; "
        f"there are {', '.join(provable)}"
    )


def _check_precisions(names: Sequence[str] | None) -> list[str]:
    for name in names or ():
        if name not in _PRECISIONS:
            raise UserError(
                f"no precision {name[:100]!r}; precisions are {', '.join(_PRECISIONS)}; choose one"
            )
    return list(dict.fromkeys(names or ()))


def _provide(requests: Sequence[str], state: State, python: str | None) -> tuple[ProofSide, ...]:
    interpreters = find_interpreters()
    releases = [resolve(parse_request(text), interpreters, python=python) for text in requests]
    found: dict[str, ProofSide] = {}
    for release in releases:
        if release.framework == "stdlib":
            raise UserError("wanted versions of jax or torch, got 'stdlib', which computes nothing")
        ERR.print(f"environment of {describe_release(release)}", markup=False)
        record = provision(
            release,
            state,
            accelerator=find_accelerator(),
            report=lambda text: ERR.print(f"  {text}", markup=False),
        )
        found.setdefault(record.key, ProofSide(release.framework, release.version, record))
    if len(found) < 2:
        raise UserError(
            f"wanted two environments that differ, got {', '.join(requests)[:200]!r}; "
            "name another --version"
        )
    return tuple(found.values())


def _list_rows(wanted: ProofRequest, state: State) -> list[dict[str, Any]]:
    """The database's rows of the requested pairs."""
    keys = {side.environment.key for side in wanted.sides}
    rows = list_proofs(open_database(state.database_url), proof_subject(wanted))
    return [
        {key: value for key, value in row.items() if key not in ("id", "snapshot")}
        for row in rows
        if {row["a_key"], row["b_key"]} <= keys and row["use_case"] in wanted.use_cases
    ]


def _tell(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"proven": all(row["passed"] for row in rows), "rows": rows})
        return
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        shown = {**row, "oracles_apart": row["oracle_error"], "of_at_most": row["oracle_bound"]}
        named = tuple(row[key] for key in ("workload", "precision", "a", "b"))
        tables.setdefault(named, []).append(shown)
    for (workload, precision, a, b), of_pair in tables.items():
        named = proof_title(workload, of_pair[0]["checkpoint"], precision)
        title = f"{named}: errors of a = {a} and b = {b} against float64"
        print_rows(of_pair, _COLUMNS, title=title)
    for row in rows:
        if not row["passed"]:
            where = f"; first in {row['first_drift']}" if row["first_drift"] else ""
            case = f"{row['workload']} {row['use_case']} in {row['precision']}"
            OUT.print(f"{case}: {row['reason']}{where}", markup=False, soft_wrap=True)
