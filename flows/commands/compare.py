"""The command `deadheat compare`: which of two is faster, and what differed between them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore import catalog
from benchcore.checkpoints import take_checkpoint
from benchcore.comparison import (
    MIN_STARTS,
    Question,
    Wanted,
    draft_comparison,
    find_case,
)
from benchcore.state import open_state
from dashboards.wording import format_ns, format_relative, format_speedup
from flows.commands.options import (
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
)
from flows.commands.why import print_bottlenecks
from flows.printing import OUT, print_json, print_rows
from flows.running import measure_plan, run_flow

_MAX_PACKAGES = 12
_ENDS = {
    "target": "until the interval was narrow enough",
    "budget": "until its time was spent",
    "max_starts": "the most that were asked for",
    "no_pair": "as one of them did not run",
}


def compare(
    workload: Annotated[str, typer.Argument(help="Name of the workload.")],
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
        int, typer.Option("--starts", help="Fresh processes, at least.")
    ] = MIN_STARTS,
    max_starts: Annotated[int, typer.Option("--max-starts", help="Fresh processes, at most.")] = 20,
    target: Annotated[
        float,
        typer.Option("--target", help="Half of the interval wanted, 0.01."),
    ] = 0.01,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds, after the fewest starts.")
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
    """Tell which of two versions or settings is faster on one case, and what differed."""
    wanted = Wanted(case=case, use_case=use_case, batch=batch, precision=precision)
    sha256 = None
    if checkpoint is not None:
        asked = catalog.find_case(workload, find_case(workload, wanted))
        sha256 = take_checkpoint(checkpoint, workload, [asked], open_state(state))
    question = Question(
        workload=workload,
        wanted=wanted,
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
    outcome = run_flow(measure_plan(drafted, opened, pool), opened, drafted.campaign)

    from flows.commands.answer import find_answer

    found = find_answer(drafted.campaign, opened, outcome["ratios"])
    if as_json:
        told = {
            "words": say_verdict(found),
            "holds_for": say_scope(found),
            "physics": say_physics(found),
        }
        kept = {key: outcome[key] for key in ("campaign", "dashboard", "failures")}
        print_json({**kept, **told, **found})
    else:
        print_comparison(found, outcome)
    if outcome["failures"]:
        raise typer.Exit(1)


def say_verdict(found: Mapping[str, Any], a: str = "a", b: str = "b") -> str:
    """`a is 1.33x (1.30 to 1.36) as fast as b`, the faster one first; `a` and `b` are what the two
    are called."""
    if found["speedup"] is None:
        return f"which of {a} and {b} is faster is unknown: {found['reason']}"
    logs = [None if found[key] is None else math.log(found[key]) for key in ("low", "high")]
    middle = math.log(found["speedup"])
    low, high = (math.nan if log is None else log for log in logs)
    if found["verdict"] == "same":
        alike = f"{a} is {format_speedup(middle, low, high)} as fast as {b}"
        return f"{a} and {b} are equally fast: {alike}"
    if found["verdict"] == "unknown":
        measured = f"{a} {format_speedup(middle, low, high)} as fast as {b}"
        return f"which of {a} and {b} is faster is unknown: measured {measured}; {found['reason']}"
    if middle < 0:
        return f"{b} is {format_speedup(-middle, -high, -low)} as fast as {a}"
    return f"{a} is {format_speedup(middle, low, high)} as fast as {b}"


def say_scope(found: Mapping[str, Any]) -> str:
    """What the verdict holds for, and how many starts say so."""
    if found["num_starts"] == 0:
        return "nothing: no start gave a ratio"
    if found["scope"] == "this start":
        return "this one start: a suspicion only"
    ended = _ENDS[found["stopped_by"]]
    return (
        f"{found['scope']} ({found['node']}, {found['device']}); {found['num_starts']} starts, "
        f"{ended}; 95 % interval"
    )


def say_physics(found: Mapping[str, Any]) -> str:
    """Whether the device's ceilings were there to hold the steps against."""
    shares = [found[side]["limit_share"] for side in ("a", "b")]
    if None in shares:
        return "Physics: not judged, as a step or the ceilings of this device were not measured."
    return f"Physics: the fastest step claims {max(shares):.0%} of what the device allows."


def print_comparison(found: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    """Verdict, scope, agreement and differences, as text."""
    for side in ("a", "b"):
        took = found[side]["median_step_ns"]
        time = "no time that counts" if took is None else f"{format_ns(took)} a step"
        _say(f"{side}: {found[side]['name']}, {time}")
    _say(f"On {found['case']}, {say_verdict(found)}.")
    if found["checkpoint"]:
        _say(f"Weights of both: the checkpoint with SHA-256 {found['checkpoint']}.")
    reason = "" if found["verdict"] == "unknown" else f" ({found['reason']})"
    _say(f"Verdict: {found['verdict']}{reason}. Holds for {say_scope(found)}.")
    if "degraded" in found["reason"] and found["verdict"] == "unknown":
        _say("The machine was disturbed meanwhile: ask again when it is quiet.")
    _say(say_agreement(found))
    _say(say_physics(found))
    for failure in outcome["failures"]:
        _say(f"{failure['name']}: {failure['status']} in {failure['stage']}: {failure['reason']}")
    print_bottlenecks(found["why"])
    _say(f"Program: {found['program']['words']}.")
    _print_differences(found["differences"])
    _say(f"Dashboard: {outcome['dashboard']}")


def say_agreement(found: Mapping[str, Any]) -> str:
    """Whether both computed the same, and how closely."""
    if found["outputs_agree"] is None:
        return "Outputs: not compared."
    rows = [
        f"{row['quantity']} {_say_distance(row['max_relative'])}"
        f" (tolerance {format_relative(row['tolerance'])})"
        for row in found["outputs"]
    ]
    return f"Outputs {'agree' if found['outputs_agree'] else 'DIFFER'}: {', '.join(rows)}."


def _say_distance(max_relative: float | None) -> str:
    return "identical" if max_relative == 0 else f"within {format_relative(max_relative)}"


def _print_differences(differences: Sequence[Mapping[str, Any]]) -> None:
    if not differences:
        _say("Nothing differed between a and b.")
        return
    packages = [row["name"] for row in differences if row["kind"] == "package"]
    hidden = packages[_MAX_PACKAGES:]
    shown = [_shorten(row) for row in differences if row["name"] not in hidden]
    told = {f"versions.{name}" for name in packages}
    rows = [row for row in shown if row["name"] not in told]
    print_rows(rows, ("kind", "name", "a", "b"), title="What differed")
    if hidden:
        _say(f"and {len(hidden)} more packages (--json lists them)")


_WORDS = {"effective": "read back", "lock_sha256": "lock"}
_PREFIX = re.compile(r"^(manifest|counts)\.")


def _shorten(row: Mapping[str, Any]) -> dict[str, Any]:
    """A lock's hash is told by its first digits; what is not set is what goes without saying."""
    a, b = row["a"], row["b"]
    if row["name"] in ("lock_sha256", "hash"):
        a, b = (value and value[:12] for value in (a, b))
    elif row["kind"] == "setting":
        a, b = ("not set" if value is None else value for value in (a, b))
    name = _WORDS.get(row["name"], _PREFIX.sub("", row["name"]).replace("_", " "))
    return {"kind": _WORDS.get(row["kind"], row["kind"]), "name": name, "a": a, "b": b}


def _say(text: str) -> None:
    OUT.print(text, markup=False, highlight=False, soft_wrap=True)
