"""The command `deadheat defects`: how far each known error moves the ratio, and what catches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore.comparison import Wanted
from benchcore.defect_study import summarise_study
from benchcore.defects import StudyRequest, draft_study
from benchcore.errors import UserError
from benchcore.matrix import Plan
from benchcore.protocol import write_json
from benchcore.shard import result_path
from benchcore.state import State, open_state
from dashboards.campaign import publish_campaign
from dashboards.defects import DISTURBED, publish_study, say_move, say_ratio
from flows.commands.options import (
    STATE,
    BatchOption,
    CampaignOption,
    CaseOption,
    CeilingsOption,
    DeviceOption,
    JsonOption,
    PoolOption,
    PrecisionOption,
    PythonOption,
    SiteOption,
    StateOption,
    UseCaseOption,
)
from flows.printing import OUT, print_json, print_rows
from flows.running import measure_plan, run_flow


def defects(
    workload: Annotated[str, typer.Argument(help="Name of the workload.")],
    case: CaseOption = None,
    use_case: UseCaseOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    switch: Annotated[
        list[str] | None, typer.Option("--switch", help="Only this defect; again for another.")
    ] = None,
    jax: Annotated[str, typer.Option("--jax", help="Version of JAX: jax==0.10.1, ...")] = "jax",
    torch: Annotated[str, typer.Option("--torch", help="Version of PyTorch.")] = "torch",
    starts: Annotated[int, typer.Option("--starts", min=2, max=100, help="Fresh processes.")] = 3,
    rounds: Annotated[int, typer.Option("--rounds", min=2, max=100, help="In each start.")] = 8,
    ceilings: CeilingsOption = True,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Play the known errors of public comparisons: what each does to the ratio, and who sees it."""
    asked = StudyRequest(
        workload=workload,
        wanted=Wanted(case=case, use_case=use_case, batch=batch, precision=precision),
        switches=tuple(switch or ()),
        jax=_check_framework("--jax", jax, "jax"),
        torch=_check_framework("--torch", torch, "torch"),
        starts=starts,
        rounds=rounds,
        ceilings=ceilings,
        device=device,
    )
    drafted = draft_study(asked, site=site, campaign=campaign, python=python)
    opened = open_state(state)
    run_flow(measure_plan(drafted, opened, pool), opened, drafted.campaign)
    found = read_study(drafted, opened, asked.switches)
    page = publish_study(found, opened.site / drafted.campaign)
    write_json(page.with_suffix(".json"), found)
    publish_campaign(opened, drafted.campaign)  # once more: now there is a page to link to
    if as_json:
        print_json({**found, "page": str(page)})
    else:
        print_study(found)
        OUT.print(f"Page: {page}", markup=False, highlight=False, soft_wrap=True)
    if found["fair"]["speedup"] is None:
        raise typer.Exit(1)


def _check_framework(option: str, request: str, framework: str) -> str:
    from benchcore.releases import parse_request

    if parse_request(request).framework != framework:
        raise UserError(
            f"wanted a version of {framework} with {option}, got {request[:100]!r}; "
            f"write for example {option} {framework}@newest"
        )
    return request


def read_study(plan: Plan, state: State, switches: Sequence[str] = ()) -> dict[str, Any]:
    """What came of a study that was measured, ingested, checked and judged. No switches = all."""
    from benchcore.store.database import open_database
    from benchcore.store.documents import read_document
    from benchcore.store.frames import contender_frame, mark_frame, ratio_frame

    engine = open_database(state.database_url)
    frames = (each(engine, plan.campaign) for each in (ratio_frame, mark_frame, contender_frame))
    ratios, marks, contenders = (frame.to_dict("records") for frame in frames)
    documents = [
        read_document(result_path(state, plan.campaign, duel.duel_run)) for duel in plan.duels
    ]
    return summarise_study(documents, ratios, marks, contenders, switches)


def print_study(found: Mapping[str, Any]) -> None:
    """The switches, the seeds' way and the fair number, as text."""
    title = f"{found['workload']} {found['case']} on {found['device']}: JAX over PyTorch"
    fair = {"switch": "none: the fair pair", "ratio": say_ratio(found["fair"]), "moves": "-"}
    rows = [{**fair, "caught by": _say_caught(found["fair"])}]
    rows += [{**_row(each), "switch": each["name"]} for each in found["switches"]]
    print_rows(rows, ("switch", "ratio", "moves", "caught by"), title=title)
    if found["rungs"]:
        rows = [{**_row(each), "errors": each["title"]} for each in found["rungs"]]
        title = "The errors of one study together, then one less at a time"
        print_rows(rows, ("errors", "ratio", "moves", "caught by"), title=title)
    if found["disturbed"]:
        OUT.print(f"Disturbed: {found['disturbed']}. {DISTURBED}", style="red", highlight=False)
    OUT.print(f"The fair number: {say_ratio(found['fair'])}", markup=False, highlight=False)


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    if each["speedup"] is None:
        return {"ratio": "-", "moves": "-", "caught by": each["why"]}
    return {"ratio": say_ratio(each), "moves": say_move(each), "caught by": _say_caught(each)}


def _say_caught(each: Mapping[str, Any]) -> str:
    caught: Sequence[Mapping[str, str]] = each["caught"]
    return "\n".join(f"{one['guard']}: {one['reason']}" for one in caught) or "nothing"
