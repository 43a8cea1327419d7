"""Publish a campaign again, from what the spool and the database hold of it."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.state import default_root, open_state
from tasks import pipeline
from tasks.campaign_run import conclude_campaign, end_run
from tasks.form import CampaignName


@flow(name="publish", validate_parameters=True)
def publish(campaign: CampaignName | None = None) -> RunState[Any]:
    """Ingest the spool, then check, judge and publish a campaign again. Measures
    nothing. Fails if its night would: where duels lack a result, or nothing counts (`Void`).

    Args:
        campaign: Name of the campaign; empty for the newest.
    """
    root = str(open_state(default_root()).root)
    refused = pipeline.ingest_results(root=root)
    try:
        chosen = campaign or pipeline.find_newest(root)
        outcome = conclude_campaign(chosen, root)
    except UserError as error:
        return Failed(message=str(error))
    if lacks := [*(f"refused: {each}" for each in refused), *outcome["problems"]]:
        return Failed(message=f"{chosen} is published; {'; '.join(lacks)}")
    if outcome["void"]:
        return end_run(outcome)
    return Completed(message=f"{chosen}: {len(outcome['ratios'])} pairs")
