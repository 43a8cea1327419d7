"""Measure a campaign that was planned before: an ad-hoc duel, or a plan from a file."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState

from benchcore.state import default_root
from tasks.campaign_run import end_run, run_campaign


@flow(name="measure", flow_run_name="{campaign}")
def measure(campaign: str, wait_minutes: float = 0) -> RunState[Any]:
    """Measure a campaign whose plan is in the state folder, and publish it."""
    return end_run(run_campaign(campaign, str(default_root()), wait_s=60 * wait_minutes))
