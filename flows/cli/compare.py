"""The command `deadheat compare`: which of two is faster, and what differed between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore.experiments.compare import (
    MIN_STARTS,
    CaseFilter,
    CompareRequest,
    conclude_comparison,
    draft_comparison,
    find_case,
)
from benchcore.planning import catalog
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.state import open_state
from dashboards.answer import (
    format_agreement,
    format_physics,
    format_scope,
    format_verdict,
)
from dashboards.formatting import format_ns
from flows.cli.in_process import measure_plan
from flows.cli.options import (
    STATE,
    BatchOption,
    CampaignOption,
    CaseOption,
    CeilingsOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    PoolOption,
    PrecisionOption,
    PythonOption,
    SetAOption,
    SetBOption,
    SideAOption,
    SideBOption,
    SiteOption,
    StateOption,
    UseCaseOption,
    WorkloadArgument,
)
from flows.cli.printing import OUT, print_json, print_notes, print_rows
from flows.cli.why import print_bottlenecks

_MAX_PACKAGES = 12


def compare(
    workload: WorkloadArgument,
    a: SideAOption,
    b: SideBOption,
    a_set: SetAOption = None,
    b_set: SetBOption = None,
    case: CaseOption = None,
    use_case: UseCaseOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    checkpoint: CheckpointOption = None,
    starts: Annotated[
        int,
        typer.Option(
            "--starts", metavar="COUNT", help="Start both sides at least this many times."
        ),
    ] = MIN_STARTS,
    max_starts: Annotated[
        int,
        typer.Option(
            "--max-starts", metavar="COUNT", help="Start both sides at most this many times."
        ),
    ] = 20,
    target: Annotated[
        float,
        typer.Option(
            "--target", metavar="RATIO", help="Stop when the interval is ± this share: 0.01 is 1 %."
        ),
    ] = 0.01,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="Add no starts after this long.")
    ] = 300.0,
    ceilings: CeilingsOption = True,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Measure which of two versions or settings is faster on one case.

    Prints verdict, interval, agreement of the outputs, and what differed. Exit code 1 if a side
    failed.
    """
    case_filter = CaseFilter(case=case, use_case=use_case, batch=batch, precision=precision)
    sha256 = None
    if checkpoint is not None:
        asked = catalog.find_case(workload, find_case(workload, case_filter))
        sha256 = take_checkpoint(checkpoint, workload, [asked], open_state(state))
    question = CompareRequest(
        workload=workload,
        case_filter=case_filter,
        a=(a, *(a_set or ())),
        b=(b, *(b_set or ())),
        starts=starts,
        max_starts=max_starts,
        target=target,
        budget_s=budget,
        ceilings=ceilings,
        device=device,
        checkpoint=sha256,
    )
    drafted = draft_comparison(question, site=site, campaign=campaign, python=python)
    opened = open_state(state)
    outcome = measure_plan(drafted, opened, pool)

    found = conclude_comparison(drafted.campaign, opened, outcome["ratios"])
    if as_json:
        told = {
            "words": format_verdict(found),
            "holds_for": format_scope(found),
            "physics": format_physics(found),
        }
        kept = {key: outcome[key] for key in ("campaign", "dashboard", "failures", "notes")}
        print_json({**kept, **told, **found})
    else:
        print_comparison(found, outcome)
    if outcome["failures"]:
        raise typer.Exit(1)


def print_comparison(found: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    """Verdict, scope, agreement and differences, as text."""
    print_notes(outcome["notes"])
    for side in ("a", "b"):
        took = found[side]["median_step_ns"]
        time = "no time that counts" if took is None else f"{format_ns(took)} a step"
        _print_line(f"{side}: {found[side]['name']}, {time}")
    _print_line(f"On {found['case']}, {format_verdict(found)}.")
    if found["checkpoint"]:
        _print_line(f"Weights of both: the checkpoint with SHA-256 {found['checkpoint']}.")
    reason = "" if found["verdict"] == "unknown" else f" ({found['reason']})"
    _print_line(f"Verdict: {found['verdict']}{reason}. Holds for {format_scope(found)}.")
    if "degraded" in found["reason"] and found["verdict"] == "unknown":
        _print_line("The machine was disturbed meanwhile: repeat the comparison when it is quiet.")
    _print_line(format_agreement(found))
    _print_line(format_physics(found))
    for failure in outcome["failures"]:
        _print_line(
            f"{failure['name']}: {failure['status']} in {failure['stage']}: {failure['reason']}"
        )
    print_bottlenecks(found["why"])
    _print_line(f"Program: {found['program']['words']}.")
    _print_differences(found["differences"])
    _print_line(f"Dashboard: {outcome['dashboard']}")


def _print_differences(differences: Sequence[Mapping[str, Any]]) -> None:
    if not differences:
        _print_line("Nothing differed between a and b.")
        return
    packages = [row["name"] for row in differences if row["kind"] == "package"]
    hidden = packages[_MAX_PACKAGES:]
    shown = [_shorten(row) for row in differences if row["name"] not in hidden]
    told = {f"versions.{name}" for name in packages}
    rows = [row for row in shown if row["name"] not in told]
    print_rows(rows, ("kind", "name", "a", "b"), title="What differed")
    if hidden:
        _print_line(f"and {len(hidden)} more packages (--json lists them)")


_WORDS = {"effective": "read back", "lock_sha256": "lock"}
_PREFIX = re.compile(r"^(manifest|counts)\.")


def _shorten(row: Mapping[str, Any]) -> dict[str, Any]:
    """A lock's hash by its first digits; an unset value as the default."""
    a, b = row["a"], row["b"]
    if row["name"] in ("lock_sha256", "hash"):
        a, b = (value and value[:12] for value in (a, b))
    elif row["kind"] == "setting":
        a, b = ("not set" if value is None else value for value in (a, b))
    name = _WORDS.get(row["name"], _PREFIX.sub("", row["name"]).replace("_", " "))
    return {"kind": _WORDS.get(row["kind"], row["kind"]), "name": name, "a": a, "b": b}


def _print_line(text: str) -> None:
    OUT.print(text, markup=False, highlight=False, soft_wrap=True)
