"""The command `deadheat tune`: the fastest fair settings of each side of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from benchcore.experiments.compare import MIN_STARTS
from benchcore.experiments.tune import run_search
from benchcore.experiments.tune_rounds import TuneRequest
from benchcore.planning.requests import ANY_CASE, USUAL, CaseFilter, Placement
from benchcore.protocol import COMPARED
from benchcore.state import open_state
from flows.cli import options
from flows.cli.in_process import ConsoleMeasurer
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_json, print_line, print_rows

_CANDIDATES = "Measure at most this many changes of each side's settings."
_BUDGET = "Measure no further changes of either side after this long."
_GAIN = "Keep a change if its interval excludes a smaller gain: 0.01 is 1 %."


@expand_groups
def tune(
    workload: options.Workload,
    case: CaseFilter = ANY_CASE,
    torch: options.Torch = "torch",
    jax: options.Jax = "jax",
    starts: options.Starts = MIN_STARTS,
    rounds: options.Rounds = 10,
    candidates: Annotated[int, option("--candidates", "COUNT", _CANDIDATES)] = 16,
    budget: Annotated[float, option("--budget", "SECONDS", _BUDGET)] = 3600.0,
    gain: Annotated[float, option("--gain", "RATIO", _GAIN)] = 0.01,
    device: options.Device = "cpu",
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Search for the fastest fair settings of both sides, for the tuned track.

    A duel compares each change of one setting with the best settings so far. A change wins only if
    it computes the same and is faster. Both sides have the same budget. Rerun it to resume.
    """
    request = TuneRequest(
        workload=workload,
        case_filter=case,
        jax=jax,
        torch=torch,
        starts=starts,
        rounds=rounds,
        candidates=candidates,
        budget_s=budget,
        gain=gain,
        device=device,
    )
    opened = open_state(state)
    found = run_search(request, opened, ConsoleMeasurer(opened), placement)
    if as_json:
        print_json(found)
    else:
        print_search(found)


def print_search(found: Mapping[str, Any]) -> None:
    """Per side each change that was tried with its outcome, then the winning settings."""
    for framework in COMPARED:
        side = found[framework]
        rows = [
            {
                **each,
                "against": _write(each["against"], each["settings"]),
                "times as fast": each["speedup"],
                "95 %": None if each["low"] is None else f"{each['low']:.3f} to {each['high']:.3f}",
                "outcome": each["reason"],
            }
            for each in side["tried"]
        ]
        columns = ("change", "against", "times as fast", "95 %", "num_starts", "outcome")
        title = f"{framework} {side['version']} on {found['case']}, {side['device']['model']}"
        print_rows(rows, columns, title=title)
        settings = ", ".join(f"{key}={value}" for key, value in side["settings"].items())
        print_line(f"Best settings of {framework}: {settings}. The search ended: {side['ended']}.")
        print_line(f"Stored with its duels in {found['documents'][framework]}")


def _write(against: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """The settings that the change replaces."""
    return ", ".join(
        f"{key}={value}" for key, value in against.items() if settings.get(key) != value
    )
