"""A form's request (a comparison or a sweep): its campaign, and its answer on the run's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prefect import Flow
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState

from benchcore.experiments.compare import conclude_comparison, draft_comparison
from benchcore.experiments.sweep import (
    SweepRequest,
    Varied,
    conclude_sweep,
    draft_sweep,
    is_measured,
)
from benchcore.planning.matrix import Plan
from benchcore.planning.requests import Placement
from benchcore.running.plans import is_planned, load_campaign, save_campaign
from benchcore.state import State
from dashboards.figures.pictures import draw_forest, to_data_uri
from dashboards.listings.answer import title_answer, write_answer
from dashboards.publish import publish_study
from dashboards.studies.sweep_page import (
    describe_crossing,
    draw_sweep,
    list_points,
    render_sweep,
    split_columns,
    title_sweep,
)
from tasks.artifacts import name_key, shorten_id, show_table
from tasks.form import Comparison
from tasks.slurm.shards import cancel_shards


def plan_comparison(
    question: Comparison, site: str, pool: str | None, run: object, state: State
) -> str:
    """The campaign of a flow run; a retried run resumes it. Raises UserError."""
    request = question.make_request()
    return _plan(
        _name("compare", question.workload, run),
        lambda placement: draft_comparison(request, placement, state),
        Placement(site=site, pool=pool),
        state,
    )


def plan_sweep(sweep: SweepRequest, site: str, pool: str | None, run: object, state: State) -> str:
    """The campaign of a sweep's flow run, as `plan_comparison` makes one."""
    return _plan(
        _name("sweep", sweep.workload, run),
        lambda placement: draft_sweep(sweep, placement, state),
        Placement(site=site, pool=pool),
        state,
    )


def _plan(name: str, draft: Callable[[Placement], Plan], placement: Placement, state: State) -> str:
    if not is_planned(state, name):
        save_campaign(draft(replace(placement, campaign=name)), state, placement.pool)
    return name


def publish_answer(campaign: str, outcome: Mapping[str, Any], state: State) -> str:
    """Show who is faster, with a picture, on the run's page; the answer in one sentence."""
    found = conclude_comparison(campaign, state, outcome["ratios"])
    title = title_answer(found)
    create_markdown_artifact(
        key=name_key("answer", campaign),
        markdown=write_answer(found, outcome["failures"], state.link_page(campaign)),
        description=title,
    )
    if picture := draw_forest(state, campaign):
        create_image_artifact(
            to_data_uri(picture),
            key=name_key("forest", campaign),
            description=f"{title}: each start, and the 95 % interval",
        )
    return title


_PER: Mapping[Varied, str] = {
    "batch": "batch",
    "devices": "number of devices",
    "size": "size",
    "models": "number of models",
}


def publish_curve(
    campaign: str, sweep: SweepRequest, outcome: Mapping[str, Any], state: State
) -> tuple[str, bool]:
    """Show a sweep's table and curve on the run's page, and write its own page; what was found, in
    one line, and whether both sides were measured at any value."""
    plan = load_campaign(state, campaign)
    found = conclude_sweep(plan, sweep, state, outcome["ratios"])
    publish_study(state, campaign, "sweep.html", render_sweep(found))
    title, points = title_sweep(found), list_points(found)
    speeds, costs = split_columns(sweep.varied, points)
    crossing = "" if found["crossing"] is None else f" {describe_crossing(found)}"
    link = f"{title}.{crossing} [Its page]({state.link_page(campaign)})"
    columns = [*speeds, "note", *costs[1:]]
    show_table(name_key("sweep", campaign), points, link, columns)
    create_image_artifact(
        to_data_uri(draw_sweep(found)),
        key=name_key("curve", campaign),
        description=f"{title}: samples per second",
    )
    shown = "; ".join(f"{each[sweep.varied]}: {each['speedup'] or each['note']}" for each in points)
    words = f"{title}; speedup of a over b per {_PER[sweep.varied]}: {shown}"
    return words + (f".{crossing}" if crossing else ""), is_measured(found)


def cancel_measurement(flow: Flow[..., Any], flow_run: FlowRun, state: RunState[Any]) -> None:
    """Release the allocations of a cancelled comparison or sweep."""
    cancel_shards(_name(flow.name, flow_run.parameters["question"]["workload"], flow_run.id))


def _name(kind: str, workload: str, run: object) -> str:
    return f"{kind}-{workload}-{shorten_id(run)}".replace("_", "-")
