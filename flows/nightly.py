"""The main job: plan tonight's duels and run them to the dashboard."""

from __future__ import annotations

from typing import Any

from prefect import flow

from benchcore.campaign import name_night
from flows.campaign import run_campaign
from tasks import steps


@flow(name="nightly", flow_run_name="{profile}-on-{site}", validate_parameters=True)
def nightly(
    profile: str = "laptop",
    site: str = "local",
    campaign: str | None = None,
    root: str = "state",
    python: str | None = None,
) -> dict[str, Any]:
    """Measure the profile's duels tonight. Run again on the same night, it resumes.

    `campaign` defaults to tonight's name, `root` is the state folder, and `python` names the
    interpreter version of every environment (default: the newest that each framework supports).
    """
    campaign = campaign or name_night(profile)
    steps.plan_campaign(profile, site=site, campaign=campaign, root=root, python=python)
    return run_campaign(campaign, root)
