"""What every campaign does once it has a plan: from environments to the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.client.schemas.objects import State

from benchcore.errors import CampaignIncompleteError
from benchcore.matrix import PlannedDuel
from flows.shards import measure_in_shards
from tasks import measuring, steps


def run_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Run a planned campaign to its dashboard. Duels that were measured before are not repeated.

    Raises CampaignIncompleteError at the end if anything was lost on the way.
    """
    for request in steps.list_requests(campaign, root):
        # A failed build is a status of its contenders, told by measure; the campaign goes on.
        steps.provision_environment(request, campaign=campaign, root=root, return_state=True)
    duels = steps.list_duels(campaign, root)
    if steps.is_on_slurm(campaign, root):
        lost = measure_in_shards(campaign, root)
    else:
        lost = _measure_all(duels, campaign, root)
    if not steps.has_results(campaign, root):
        raise CampaignIncompleteError("no duel left a result: " + "\n".join(lost))
    lost += steps.ingest_results(root=root)
    marks = steps.check_results(campaign=campaign, root=root)
    ratios = steps.judge_results(campaign=campaign, root=root)
    page = steps.publish_dashboard(campaign=campaign, root=root)
    if ratios:
        create_table_artifact(key=f"ratios-{_key(campaign)}", table=ratios)
    create_link_artifact(
        key=f"dashboard-{_key(campaign)}", link=Path(page).as_uri(), link_text="Dashboard"
    )
    if lost:
        raise CampaignIncompleteError("\n".join(lost))
    failures = steps.list_failed(campaign, root)
    return {
        "campaign": campaign,
        "dashboard": page,
        "marks": marks,
        "failures": failures,
        "ratios": ratios,
    }


def _measure_all(duels: Sequence[PlannedDuel], campaign: str, root: str) -> list[str]:
    """Every duel as a task run of its own; why the ones failed that left no result."""
    for workload, precision in steps.list_proofs(campaign, root):
        # Without a proof its pairs get no ratio, told by the checks; the campaign goes on.
        measuring.prove_workload(
            workload, precision, campaign=campaign, root=root, return_state=True
        )
    lost: list[str] = []
    for duel in duels:
        ended: State[str] = measuring.measure_duel(
            duel.title, duel.duel_run, campaign=campaign, root=root, return_state=True
        )
        if not ended.is_completed():
            lost.append(f"{duel.title}: {ended.message}")
    return lost


def _key(campaign: str) -> str:
    """Prefect's artifact keys hold lower-case letters, digits and dashes only."""
    return campaign.replace("_", "-").replace(".", "-")
