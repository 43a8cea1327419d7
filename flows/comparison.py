"""Which of two is faster: asked in a form of Prefect's UI, and answered on the run's own page."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.comparison import draft_comparison
from benchcore.errors import UserError
from benchcore.state import State, default_root, open_state
from dashboards.pictures import draw_forest, to_data_uri
from flows.answer import find_answer, title_answer, write_answer
from flows.campaign import key_artifact, link_page, run_campaign
from flows.compare import say_verdict
from flows.running import check_site
from tasks.form import Comparison, SiteName


@flow(name="compare", flow_run_name="compare-{question.workload}", validate_parameters=True)
def compare(question: Comparison, site: SiteName = "local") -> RunState[Any]:
    """Tell which of two versions or settings is faster on one case, and what differed.

    Args:
        question: What is compared, and on what. Both sides compute the same, interleaved on one
            device.
        site: Where it is measured.
    """
    state = open_state(default_root())
    try:
        check_site(site)
        campaign = _plan(question, site, state)
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
    return Completed(message=say_verdict(found))


def _plan(question: Comparison, site: str, state: State) -> str:
    """The campaign of this run. A run that is started again resumes what it began."""
    name = f"compare-{question.workload}-{str(flow_run.id)[:8]}".replace("_", "-")
    path = steps.campaign_folder(state, name) / "plan.json"
    if not path.exists():
        matrix.save_plan(draft_comparison(question.ask(), site=site, campaign=name), path)
    return name
