"""Measure past versions of a framework that can be installed here in one campaign, and measure
again what seems to have changed."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Failed

from benchcore.errors import UserError
from benchcore.experiments.rounds import make_context
from benchcore.protocol import ComparedFramework
from benchcore.state import default_root, open_state
from tasks.artifacts import shorten_id
from tasks.experiment_runs import measure_past, plan_past
from tasks.form import Minutes, NumVersions, ProfileName, PublishedVersion, SiteName


@flow(name="backfill", flow_run_name="backfill-{framework}", validate_parameters=True)
def backfill(
    framework: ComparedFramework,
    versions: NumVersions = 8,
    below: PublishedVersion | None = None,
    profile: ProfileName = "history",
    site: SiteName = "local",
    budget_minutes: Minutes = 60,
) -> RunState[Any]:
    """Measure past versions of a framework against each other, and all against the other framework;
    report what each changed.

    Args:
        framework: Framework whose past versions are measured.
        versions: Number of versions, of those that can be installed here.
        below: Only versions before this one; empty to begin with the newest.
        profile: Profile whose cases are measured.
        site: Where to measure.
        budget_minutes: Start no further measurement of an apparent change after this many minutes.
    """
    state = open_state(default_root())
    name = f"backfill-{framework}-{shorten_id(flow_run.id)}"
    try:
        plan_past(framework, below, versions, make_context(profile, site), name, state)
    except UserError as error:
        return Failed(message=str(error))
    return measure_past(framework, name, 60 * budget_minutes, state)
