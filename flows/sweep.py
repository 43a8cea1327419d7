"""Two sides over several batch sizes, device counts, model sizes or numbers of concurrent models:
started from a form."""

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
from tasks.comparison import cancel_measurement, plan_sweep, publish_curve
from tasks.form import PoolName, SiteName, Sweep


@flow(
    name="sweep",
    flow_run_name="sweep-{question.workload}",
    validate_parameters=True,
    on_cancellation=[cancel_measurement],
)
def sweep(question: Sweep, site: SiteName = "local", pool: PoolName | None = None) -> RunState[Any]:
    """Measure two sides over several batch sizes, device counts, model sizes or numbers of
    concurrent models.

    Args:
        question: What to compare, and over which values. A side that fails at one, such as out of
            memory, has its status there.
        site: Where to measure.
        pool: Pool of a Slurm site; empty for its default.
    """
    state = open_state(default_root())
    try:
        check_site(site, pool)
        request = question.make_request()
        campaign = plan_sweep(request, site, pool, flow_run.id, state)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(campaign, str(state.root))
    words, measured = publish_curve(campaign, request, outcome, state)
    return Completed(message=words) if measured else Failed(message=words)
