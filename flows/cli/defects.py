"""The command `deadheat defects`: how much known errors change the ratio, and what catches each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore.experiments.defect_study.defects import StudyRequest, conclude_study, draft_study
from benchcore.planning.requests import ANY_CASE, USUAL, CaseFilter, Placement
from benchcore.protocol import write_json
from benchcore.state import open_state
from dashboards.publish import publish_study
from dashboards.studies.defects_page import DISTURBED, format_move, format_ratio, render_study
from flows.cli import options
from flows.cli.in_process import measure_plan
from flows.cli.options import expand_groups, option
from flows.cli.printing import OUT, print_json, print_line, print_rows

_SWITCH = "Reproduce only this error; repeat for more (default: all)."


@expand_groups
def defects(
    workload: options.Workload,
    case: CaseFilter = ANY_CASE,
    switch: Annotated[list[str] | None, option("--switch", "NAME", _SWITCH)] = None,
    jax: options.Jax = "jax",
    torch: options.Torch = "torch",
    starts: options.StartsFrom2 = 3,
    rounds: options.RoundsFrom2 = 8,
    ceilings: options.Ceilings = True,
    device: options.Device = "cpu",
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Reproduce known benchmarking errors: what each does to the ratio, what detects it."""
    request = StudyRequest(
        workload=workload,
        case_filter=case,
        switches=tuple(switch or ()),
        jax=jax,
        torch=torch,
        starts=starts,
        rounds=rounds,
        ceilings=ceilings,
        device=device,
    )
    drafted = draft_study(request, placement)
    opened = open_state(state)
    measure_plan(drafted, opened, placement.pool)
    found = conclude_study(drafted, opened, request.switches)
    page = publish_study(opened, drafted.campaign, "defects.html", render_study(found))
    write_json(page.with_suffix(".json"), found)
    if as_json:
        print_json({**found, "page": str(page)})
    else:
        _print(found)
        print_line(f"Page: {page}")
    if found["fair"]["speedup"] is None:
        raise typer.Exit(1)


def _print(found: Mapping[str, Any]) -> None:
    """The switches, the corrections and the fair number, as text."""
    title = f"{found['workload']} {found['case']} on {found['device']}: JAX over PyTorch"
    fair = {"switch": "none: the fair pair", "ratio": format_ratio(found["fair"]), "moves": "-"}
    rows = [{**fair, "caught by": _format_guards(found["fair"])}]
    rows += [{**_row(each), "switch": each["name"]} for each in found["switches"]]
    print_rows(rows, ("switch", "ratio", "moves", "caught by"), title=title)
    if found["corrections"]:
        rows = [{**_row(each), "errors": each["title"]} for each in found["corrections"]]
        title = "All errors of one study, then removed one at a time"
        print_rows(rows, ("errors", "ratio", "moves", "caught by"), title=title)
    if found["disturbed"]:
        OUT.print(f"Disturbed: {found['disturbed']}. {DISTURBED}", style="red", highlight=False)
    print_line(f"The fair number: {format_ratio(found['fair'])}")


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    if each["speedup"] is None:
        return {"ratio": "-", "moves": "-", "caught by": each["why"]}
    return {
        "ratio": format_ratio(each),
        "moves": format_move(each),
        "caught by": _format_guards(each),
    }


def _format_guards(each: Mapping[str, Any]) -> str:
    caught: Sequence[Mapping[str, str]] = each["caught"]
    return "\n".join(f"{one['guard']}: {one['reason']}" for one in caught) or "nothing"
