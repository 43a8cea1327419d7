"""The main job: plan tonight's duels and run them to the dashboard."""

from __future__ import annotations

from typing import Any

from prefect import flow

from benchcore.campaign import name_night
from benchcore.state import default_root
from flows.campaign import run_campaign
from tasks import steps


@flow(name="nightly", flow_run_name="{profile}-on-{site}", validate_parameters=True)
def nightly(
    profile: str = "laptop",
    site: str = "local",
    campaign: str | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    """Measure the profile's duels tonight. Run again on the same night, it resumes.

    `campaign` defaults to tonight's name, `site` is the name of a site, and `python` the
    interpreter version of every environment (default: the newest that each framework supports).
    The state folder is never a parameter: DEADHEAT_STATE names it where the flow runs.
    """
    root = str(default_root())
    campaign = campaign or name_night(profile)
    steps.plan_campaign(profile, site=site, campaign=campaign, root=root, python=python)
    return run_campaign(campaign, root)
