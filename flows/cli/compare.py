"""The command `deadheat compare`: which of two is faster, and what differed between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore.experiments.compare import (
    MIN_STARTS,
    CompareRequest,
    choose_case,
    conclude_comparison,
    draft_comparison,
)
from benchcore.planning import catalog
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.planning.requests import ANY_CASE, USUAL, CaseFilter, Placement
from benchcore.planning.tracks import DEFAULT_TRACK
from benchcore.state import open_state
from dashboards.formatting import format_ns
from dashboards.listings.answer import (
    format_agreement,
    format_physics,
    format_scope,
    format_verdict,
)
from flows.cli import options
from flows.cli.bottlenecks import print_bottlenecks
from flows.cli.in_process import measure_plan
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_json, print_line, print_notes, print_rows

_MAX_PACKAGES = 12


_STARTS = "Start both sides at least this many times."
_MAX_STARTS = "Start both sides at most this many times."
_TARGET = "Stop when the 95 % interval is within ± this share: 0.01 is 1 %."
_TRACK = "Take the settings of this track: default, or tuned (as deadheat tune found them)."
_BUDGET = "Add no starts after this long."


@expand_groups
def compare(
    workload: options.Workload,
    a: options.SideA,
    b: options.SideB,
    a_set: options.SetA = None,
    b_set: options.SetB = None,
    case: CaseFilter = ANY_CASE,
    checkpoint: options.Checkpoint = None,
    starts: Annotated[int, option("--starts", "COUNT", _STARTS)] = MIN_STARTS,
    max_starts: Annotated[int, option("--max-starts", "COUNT", _MAX_STARTS)] = 20,
    compilations: options.Compilations = MIN_STARTS,
    target: Annotated[float, option("--target", "RATIO", _TARGET)] = 0.01,
    budget: Annotated[float, option("--budget", "SECONDS", _BUDGET)] = 300.0,
    track: Annotated[str, option("--track", "NAME", _TRACK)] = DEFAULT_TRACK,
    ceilings: options.Ceilings = True,
    device: options.Device = "cpu",
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure which of two versions or settings is faster on one case.

    Prints verdict, interval, agreement of the outputs, and what differed. Exit code 1 if a side
    failed.
    """
    sha256 = None
    if checkpoint is not None:
        chosen = catalog.find_case(workload, choose_case(workload, case))
        sha256 = take_checkpoint(checkpoint, workload, [chosen], open_state(state))
    question = CompareRequest(
        workload=workload,
        case_filter=case,
        a=(a, *(a_set or ())),
        b=(b, *(b_set or ())),
        starts=starts,
        max_starts=max_starts,
        compilations=compilations,
        target=target,
        budget_s=budget,
        ceilings=ceilings,
        device=device,
        track=track,
        checkpoint=sha256,
    )
    opened = open_state(state)
    drafted = draft_comparison(question, placement, opened)
    outcome = measure_plan(drafted, opened, placement.pool)
    found = conclude_comparison(drafted.campaign, opened, outcome["ratios"])
    if as_json:
        summary = {
            "summary": format_verdict(found),
            "holds_for": format_scope(found),
            "physics": format_physics(found),
        }
        kept = {key: outcome[key] for key in ("campaign", "dashboard", "failures", "notes")}
        print_json({**kept, **summary, **found})
    else:
        print_comparison(found, outcome)
    if outcome["failures"]:
        raise typer.Exit(1)


def print_comparison(found: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    """Verdict, scope, agreement and differences, as text."""
    print_notes(outcome["notes"])
    for side in ("a", "b"):
        took = found[side]["median_step_ns"]
        time = "no time that counts" if took is None else f"{format_ns(took)} per step"
        print_line(f"{side}: {found[side]['name']} ({_list_settings(found[side])}), {time}")
    print_line(f"On {found['case']}, {format_verdict(found)}.")
    if found["checkpoint"]:
        print_line(f"Weights of both: the checkpoint with SHA-256 {found['checkpoint']}.")
    reason = "" if found["verdict"] == "unknown" else f" ({found['reason']})"
    print_line(f"Verdict: {found['verdict']}{reason}. Holds for {format_scope(found)}.")
    if "degraded" in found["reason"] and found["verdict"] == "unknown":
        print_line("The machine was disturbed meanwhile: repeat the comparison when it is quiet.")
    print_line(format_agreement(found))
    print_line(format_physics(found))
    for failure in outcome["failures"]:
        print_line(
            f"{failure['name']}: {failure['status']} in {failure['stage']}: {failure['reason']}"
        )
    print_bottlenecks(found["why"])
    print_line(f"Program: {found['program']['summary']}.")
    across = found["a"]["framework"] != found["b"]["framework"]
    _print_differences(
        [each for each in found["differences"] if not (across and _is_of_one_framework(each))]
    )
    print_line(f"Dashboard: {outcome['dashboard']}")


def _list_settings(side: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in side["settings"].items())


def _is_of_one_framework(row: Mapping[str, Any]) -> bool:
    """What the other framework lacks, such as cuDNN's benchmark: nothing to compare."""
    return row["kind"] == "effective" and None in (row["a"], row["b"])


def _print_differences(differences: Sequence[Mapping[str, Any]]) -> None:
    if not differences:
        print_line("Nothing differed between a and b.")
        return
    packages = [row["name"] for row in differences if row["kind"] == "package"]
    hidden = packages[_MAX_PACKAGES:]
    shown = [_shorten(row) for row in differences if row["name"] not in hidden]
    named = {f"versions.{name}" for name in packages}
    rows = [row for row in shown if row["name"] not in named]
    print_rows(rows, ("kind", "name", "a", "b"), title="What differed")
    if hidden:
        print_line(f"and {len(hidden)} more packages (--json lists them)")


_WORDS = {"effective": "read back", "lock_sha256": "lock", "owed": "results that a step returns"}
_PREFIX = re.compile(r"^(manifest|counts)\.")


def _shorten(row: Mapping[str, Any]) -> dict[str, Any]:
    """A lock's hash by its first digits; an unset value as the default."""
    a, b = row["a"], row["b"]
    if row["name"] in ("lock_sha256", "hash"):
        a, b = (value and value[:12] for value in (a, b))
    elif row["kind"] == "setting":
        a, b = ("not set" if value is None else value for value in (a, b))
    name = _PREFIX.sub("", row["name"])
    name = _WORDS.get(name, name.replace("_", " "))
    return {"kind": _WORDS.get(row["kind"], row["kind"]), "name": name, "a": a, "b": b}
