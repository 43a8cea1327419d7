"""The nightly flow: plan tonight's duels, measure them and publish the dashboard."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState

from benchcore.errors import CampaignIncompleteError
from benchcore.planning.requests import Placement
from benchcore.running.plans import name_night
from benchcore.running.retention import read_keep_nights
from benchcore.state import default_root
from tasks import pipeline
from tasks.campaign_run import end_run, run_campaign
from tasks.form import CampaignName, Hours, Minutes, PoolName, ProfileName, SiteName, TimeZone


@flow(name="nightly", flow_run_name="{profile}-on-{site}", validate_parameters=True)
def nightly(  # noqa: PLR0913 - a form's fields
    profile: ProfileName = "laptop",
    site: SiteName = "local",
    pool: PoolName | None = None,
    campaign: CampaignName | None = None,
    python: str | None = None,
    hours: Hours | None = None,
    wait_minutes: Minutes = 0,
    timezone: TimeZone = "UTC",
) -> RunState[Any]:
    """Measure the profile's duels tonight. A rerun on the same night resumes.

    If nothing counts, the run fails as `Void`, with the reason. DEADHEAT_STATE names the state
    folder where the flow runs.

    Args:
        profile: What to measure.
        site: Where to measure.
        pool: Pool of a Slurm site; empty for its default.
        campaign: Name of the campaign; empty for tonight's.
        python: Python version of every environment, such as 3.12; empty for the newest that each
            framework supports.
        hours: Measure only what fits into this many hours on one device, the most valuable duels
            first; empty for all.
        wait_minutes: Wait at most this long for a quiet machine (site local).
        timezone: Time zone whose date names the night: that of its schedule.
    """
    root, keep_nights = str(default_root()), read_keep_nights()
    night = pipeline.find_night(timezone)
    campaign = campaign or name_night(profile, night)
    placement = Placement(site=site, pool=pool, campaign=campaign, python=python)
    pipeline.plan_campaign(profile, placement, root=root, hours=hours, night=night)
    try:
        outcome = run_campaign(campaign, root, wait_s=60 * wait_minutes)
    except CampaignIncompleteError as error:  # what was measured is published and judged
        pipeline.end_night(campaign, root, keep_nights, error.outcome)
        raise
    pipeline.end_night(campaign, root, keep_nights, outcome)
    return end_run(outcome)
