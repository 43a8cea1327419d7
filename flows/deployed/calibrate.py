"""More trials of our own alarms: what `deadheat calibration --measure` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.state import default_root, open_state
from benchcore.store.calibration import measure_calibration
from benchcore.store.database import open_database
from dashboards.calibration import answer_calibration, list_rates
from flows.commands.calibration import measure_trials
from flows.running import check_site
from tasks.form import NumTrials, ProfileName, SiteName


@flow(name="calibrate", flow_run_name="calibrate-{trials}-trials", validate_parameters=True)
def calibrate(
    trials: NumTrials = 6, profile: ProfileName = "laptop", site: SiteName = "local"
) -> RunState[Any]:
    """Measure trials whose truth is known, and tell how often our own alarms err.

    Args:
        trials: How many more, beside those of every night.
        profile: Whose trials; not every profile has some.
        site: Where.
    """
    state = open_state(default_root())
    try:
        check_site(site)
        measure_trials(trials, profile, site, state, lambda measure, state, name: measure())
    except UserError as error:
        return Failed(message=str(error))
    found = measure_calibration(open_database(state.database_url))
    if rates := list_rates(found):
        create_table_artifact(key="calibration", table=rates, description=answer_calibration(found))
    return Completed(message=answer_calibration(found))
