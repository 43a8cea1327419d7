"""Measure more calibration runs: what `deadheat calibration --measure` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.experiments.changes.calibrate import run_calibration
from benchcore.experiments.rounds import make_context
from benchcore.state import default_root, open_state
from benchcore.store.database import open_database
from benchcore.store.reports.calibration import measure_calibration
from dashboards.listings.error_rates import list_rates, summarise_error_rates
from tasks.artifacts import show_table
from tasks.campaign_run import TaskMeasurer
from tasks.form import NumRuns, ProfileName, SiteName


@flow(name="calibrate", flow_run_name="calibrate-{runs}-runs", validate_parameters=True)
def calibrate(
    runs: NumRuns = 6, profile: ProfileName = "laptop", site: SiteName = "local"
) -> RunState[Any]:
    """Measure calibration runs with a known answer, and report how often our verdicts are wrong.

    Args:
        runs: Number of calibration runs, in addition to those that nights measure.
        profile: Profile with the calibration runs to measure; not every profile has any.
        site: Where to measure.
    """
    state = open_state(default_root())
    try:
        run_calibration(runs, make_context(profile, site), TaskMeasurer(state))
    except UserError as error:
        return Failed(message=str(error))
    found = measure_calibration(open_database(state.database_url))
    summary = summarise_error_rates(found)
    show_table("calibration", list_rates(found), summary)
    return Completed(message=summary)
