"""The comparison that a form asks for: its campaign, and its answer on the run's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import Flow
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState

from benchcore.experiments.compare import conclude_comparison, draft_comparison
from benchcore.planning.requests import Placement
from benchcore.running.plans import is_planned, save_campaign
from benchcore.state import State
from dashboards.answer import title_answer, write_answer
from dashboards.pictures import draw_forest, to_data_uri
from tasks.artifacts import name_key
from tasks.form import Comparison
from tasks.slurm_shards import cancel_shards


def plan_comparison(
    question: Comparison, site: str, pool: str | None, run: object, state: State
) -> str:
    """The campaign of a flow run; a retried run resumes it. Raises UserError."""
    name = _name(question.workload, run)
    if not is_planned(state, name):
        plan = draft_comparison(question.make_request(), Placement(site=site, campaign=name), state)
        save_campaign(plan, state, pool)
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


def cancel_comparison(flow: Flow[..., Any], flow_run: FlowRun, state: RunState[Any]) -> None:
    """Release the allocations of a cancelled comparison."""
    cancel_shards(_name(flow_run.parameters["question"]["workload"], flow_run.id))


def _name(workload: str, run: object) -> str:
    return f"compare-{workload}-{str(run)[:8]}".replace("_", "-")
