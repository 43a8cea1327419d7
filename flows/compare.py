"""Which of two is faster: started from a form in Prefect's UI, answered on the run's page."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.running.sites import check_site
from benchcore.state import default_root, open_state
from tasks.campaign_run import run_campaign
from tasks.comparison import cancel_measurement, plan_comparison, publish_answer
from tasks.form import Comparison, PoolName, SiteName


@flow(
    name="compare",
    flow_run_name="compare-{question.workload}",
    validate_parameters=True,
    on_cancellation=[cancel_measurement],
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
        campaign = plan_comparison(question, site, pool, flow_run.id, state)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(campaign, str(state.root))
    return Completed(message=publish_answer(campaign, outcome, state))
