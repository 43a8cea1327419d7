"""Which of two is faster: asked in a form of Prefect's UI, and answered on the run's own page."""

from __future__ import annotations

import dataclasses
from typing import Any

from prefect import Flow, flow
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.comparison import draft_comparison
from benchcore.errors import UserError
from benchcore.state import State, default_root, open_state
from dashboards.pictures import draw_forest, to_data_uri
from flows.campaign import key_artifact, link_page, run_campaign
from flows.commands.answer import find_answer, title_answer, write_answer
from flows.running import check_site
from tasks.form import Comparison, PoolName, SiteName
from tasks.slurm_shards import cancel_shards


def _give_back(flow: Flow[..., Any], flow_run: FlowRun, state: RunState[Any]) -> None:
    """A question that was cancelled keeps no allocation of its site."""
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
    """Tell which of two versions or settings is faster on one case, and what differed.

    Args:
        question: What is compared, and on what. Both sides compute the same, interleaved on one
            device.
        site: Where it is measured.
        pool: Of a Slurm site; without one, its only or default one.
    """
    state = open_state(default_root())
    try:
        check_site(site, pool)
        campaign = _plan(question, site, pool, state)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(campaign, str(state.root))
    found = find_answer(campaign, state, outcome["ratios"])
    create_markdown_artifact(
        key=f"answer-{key_artifact(campaign)}",
        markdown=write_answer(found, outcome["failures"], link_page(campaign, state)),
        description=title_answer(found),
    )
    if picture := draw_forest(state, campaign):
        create_image_artifact(
            to_data_uri(picture),
            key=f"forest-{key_artifact(campaign)}",
            description=f"{title_answer(found)}: each start, and the 95 % interval",
        )
    return Completed(message=title_answer(found))


def _plan(question: Comparison, site: str, pool: str | None, state: State) -> str:
    """The campaign of this run. A run that is started again resumes what it began."""
    name = _name(question.workload, flow_run.id)
    path = steps.campaign_folder(state, name) / "plan.json"
    if not path.exists():
        plan = draft_comparison(question.ask(), site=site, campaign=name)
        matrix.save_plan(dataclasses.replace(plan, pool=pool), path)
    return name


def _name(workload: str, run: object) -> str:
    return f"compare-{workload}-{str(run)[:8]}".replace("_", "-")
