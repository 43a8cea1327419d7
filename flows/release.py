"""Measure a release of a framework, and report what it changed."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.releases.release import describe_crashes, judge_release, plan_release
from benchcore.experiments.rounds import make_context
from benchcore.protocol import ComparedFramework
from benchcore.state import default_root, open_state
from tasks.campaign_run import TaskMeasurer, run_campaign
from tasks.form import Attempt, Minutes, ProfileName, PublishedVersion, SiteName
from tasks.release_watch import conclude


@flow(name="release", flow_run_name="{framework}-{version}", validate_parameters=True)
def release(
    framework: ComparedFramework,
    version: PublishedVersion,
    profile: ProfileName = "laptop",
    site: SiteName = "local",
    budget_minutes: Minutes = 60,
    attempt: Attempt = 0,
) -> RunState[Any]:
    """Measure a release against the one before it, and both against the other framework; report
    what it changed.

    Args:
        framework: Framework that was released.
        version: Its version, as published.
        profile: Profile whose cases are measured.
        site: Where to measure.
        budget_minutes: Measure each case again in fresh starts, then search the package behind the
            largest change; start nothing after this many minutes.
        attempt: Number of earlier attempts; each attempt is a separate campaign.
    """
    state = open_state(default_root())
    found, failures = None, list[str]()
    try:
        context = make_context(profile, site)
        request = plan_release(framework, version, attempt, context, 60 * budget_minutes, state)
        try:
            run_campaign(request.campaign, str(state.root))
        except CampaignIncompleteError as error:  # no fault of the release; the rest is judged
            failures.append(f"was not measured completely: {error}")
        if crashed := describe_crashes(request, state):
            failures.insert(0, f"failed: {crashed}")
        found = judge_release(request, context, state, TaskMeasurer(state))
    except UserError as error:
        failures.append(f"failed: {error}")
    failure = "; it ".join(failures)
    text = conclude(framework, version, attempt, failure=failure, found=found, state=state)
    return Failed(message=text) if failure else Completed(message=text)
