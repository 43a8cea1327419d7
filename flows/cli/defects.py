"""The command `deadheat defects`: how far each known error moves the ratio, and what catches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore.environments.version_requests import parse_request
from benchcore.errors import UserError
from benchcore.experiments.compare import CaseFilter
from benchcore.experiments.defect_summary import summarise_study
from benchcore.experiments.defects import StudyRequest, draft_study
from benchcore.planning.matrix import Plan
from benchcore.protocol import write_json
from benchcore.running.duel_process import result_path
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.documents import read_document
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from dashboards.defects_page import DISTURBED, format_move, format_ratio, publish_study
from dashboards.publish import publish_campaign
from flows.cli.in_process import measure_plan
from flows.cli.options import (
    STATE,
    BatchOption,
    CampaignOption,
    CaseOption,
    CeilingsOption,
    DeviceOption,
    JaxOption,
    JsonOption,
    PoolOption,
    PrecisionOption,
    PythonOption,
    RoundsOption,
    SiteOption,
    StateOption,
    TorchOption,
    UseCaseOption,
    WorkloadArgument,
)
from flows.cli.printing import OUT, print_json, print_rows


def defects(
    workload: WorkloadArgument,
    case: CaseOption = None,
    use_case: UseCaseOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(
            "--switch", metavar="NAME", help="Reproduce only this error; repeat for more."
        ),
    ] = None,
    jax: JaxOption = "jax",
    torch: TorchOption = "torch",
    starts: Annotated[
        int,
        typer.Option(
            "--starts",
            metavar="COUNT",
            min=2,
            max=100,
            help="Start the contenders this many times.",
        ),
    ] = 3,
    rounds: RoundsOption = 8,
    ceilings: CeilingsOption = True,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Reproduce known benchmarking errors: how far each moves the ratio, what detects it."""
    asked = StudyRequest(
        workload=workload,
        case_filter=CaseFilter(case=case, use_case=use_case, batch=batch, precision=precision),
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
    measure_plan(drafted, opened, pool)
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
    if parse_request(request).framework != framework:
        raise UserError(
            f"wanted a version of {framework} with {option}, got {request[:100]!r}; "
            f"write for example {option} {framework}@newest"
        )
    return request


def read_study(plan: Plan, state: State, switches: Sequence[str] = ()) -> dict[str, Any]:
    """What came of a study that was measured, ingested, checked and judged. No switches = all."""
    engine = open_database(state.database_url)
    frames = (
        each(engine, plan.campaign) for each in (ratio_frame, failed_check_frame, contender_frame)
    )
    ratios, marks, contenders = (frame.to_dict("records") for frame in frames)
    documents = [
        read_document(result_path(state, plan.campaign, duel.duel_run)) for duel in plan.duels
    ]
    return summarise_study(documents, ratios, marks, contenders, switches)


def print_study(found: Mapping[str, Any]) -> None:
    """The switches, the seeds' way and the fair number, as text."""
    title = f"{found['workload']} {found['case']} on {found['device']}: JAX over PyTorch"
    fair = {"switch": "none: the fair pair", "ratio": format_ratio(found["fair"]), "moves": "-"}
    rows = [{**fair, "caught by": _say_caught(found["fair"])}]
    rows += [{**_row(each), "switch": each["name"]} for each in found["switches"]]
    print_rows(rows, ("switch", "ratio", "moves", "caught by"), title=title)
    if found["corrections"]:
        rows = [{**_row(each), "errors": each["title"]} for each in found["corrections"]]
        title = "The errors of one study together, then one less at a time"
        print_rows(rows, ("errors", "ratio", "moves", "caught by"), title=title)
    if found["disturbed"]:
        OUT.print(f"Disturbed: {found['disturbed']}. {DISTURBED}", style="red", highlight=False)
    OUT.print(f"The fair number: {format_ratio(found['fair'])}", markup=False, highlight=False)


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    if each["speedup"] is None:
        return {"ratio": "-", "moves": "-", "caught by": each["why"]}
    return {"ratio": format_ratio(each), "moves": format_move(each), "caught by": _say_caught(each)}


def _say_caught(each: Mapping[str, Any]) -> str:
    caught: Sequence[Mapping[str, str]] = each["caught"]
    return "\n".join(f"{one['guard']}: {one['reason']}" for one in caught) or "nothing"
