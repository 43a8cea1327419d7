"""Which of two is faster: started from a form in Prefect's UI, answered on the run's page."""

from __future__ import annotations

import dataclasses
from typing import Any

from prefect import Flow, flow
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.experiments.compare import conclude_comparison, draft_comparison
from benchcore.planning import matrix
from benchcore.planning.requests import Placement
from benchcore.running.plans import campaign_folder
from benchcore.running.sites import check_site
from benchcore.state import State, default_root, open_state
from dashboards.answer import title_answer, write_answer
from dashboards.pictures import draw_forest, to_data_uri
from tasks.artifacts import name_key
from tasks.campaign_run import run_campaign
from tasks.form import Comparison, PoolName, SiteName
from tasks.slurm_shards import cancel_shards


def _give_back(flow: Flow[..., Any], flow_run: FlowRun, state: RunState[Any]) -> None:
    """Release the allocations of a cancelled comparison."""
    cancel_shards(_name(flow_run.parameters["question"]["workload"], flow_run.id))


@flow(
    name="compare",
    flow_run_name="compare-{question.workload}",
    validate_parameters=True,
    on_cancellation=[_give_back],
)
def compare(
    question: Comparison, site: SiteName = "local", pool: PoolName | None = None
) -> RunState[Any]:
    """Measure which of two versions or settings is faster on one case, and what differed.

    Args:
        question: What to compare, and on which case. Both sides compute the same, interleaved on
            one device.
        site: Where to measure.
        pool: Pool of a Slurm site; empty for its default.
    """
    state = open_state(default_root())
    try:
        check_site(site, pool)
        campaign = _plan(question, site, pool, state)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(campaign, str(state.root))
    found = conclude_comparison(campaign, state, outcome["ratios"])
    create_markdown_artifact(
        key=name_key("answer", campaign),
        markdown=write_answer(found, outcome["failures"], state.link_page(campaign)),
        description=title_answer(found),
    )
    if picture := draw_forest(state, campaign):
        create_image_artifact(
            to_data_uri(picture),
            key=name_key("forest", campaign),
            description=f"{title_answer(found)}: each start, and the 95 % interval",
        )
    return Completed(message=title_answer(found))


def _plan(question: Comparison, site: str, pool: str | None, state: State) -> str:
    """The campaign of this run; a retried run resumes it."""
    name = _name(question.workload, flow_run.id)
    path = campaign_folder(state, name) / "plan.json"
    if not path.exists():
        plan = draft_comparison(question.make_request(), Placement(site=site, campaign=name), state)
        matrix.save_plan(dataclasses.replace(plan, pool=pool), path)
    return name


def _name(workload: str, run: object) -> str:
    return f"compare-{workload}-{str(run)[:8]}".replace("_", "-")
