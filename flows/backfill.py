"""Measure past versions of a framework that can be installed here in one campaign, and measure
again what seems to have changed."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.backfill import (
    CHANGE_COLUMNS,
    describe_changes,
    describe_measured,
    find_versions,
    judge_backfill,
    list_changes,
    list_versions,
    plan_backfill,
)
from benchcore.experiments.rounds import RunContext
from benchcore.planning.profiles import load_profile
from benchcore.protocol import ComparedFramework
from benchcore.running.plans import is_planned
from benchcore.running.sites import check_site
from benchcore.state import default_root, open_state
from tasks.artifacts import name_key, shorten_id, show_table
from tasks.campaign_run import TaskMeasurer, run_campaign
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
        check_site(site)
        if not is_planned(state, name):
            context = RunContext(profile=load_profile(profile), site=site)
            past = find_versions(framework, below=below, count=versions)
            show_table(name_key("versions", name), list_versions(past))
            plan_backfill(framework, past, context, name, state)
    except UserError as error:
        return Failed(message=str(error))
    lost = ""
    try:
        outcome = run_campaign(name, str(state.root))
    except CampaignIncompleteError as error:  # the rest is judged
        if error.outcome is None:
            raise
        outcome, lost = error.outcome, f"; not measured completely: {error}"
    found = judge_backfill(framework, name, 60 * budget_minutes, state, TaskMeasurer(state))
    lines = describe_changes(found)
    show_table(name_key("changes", name), list_changes(found), "\n\n".join(lines), CHANGE_COLUMNS)
    text = describe_measured(framework, name, outcome["failures"], state) + lost
    return Failed(message=text) if lost or outcome["failures"] else Completed(message=text)
