"""What every campaign does once it has a plan: from environments to the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.transactions import transaction

from benchcore import variables
from benchcore.errors import CampaignIncompleteError
from benchcore.matrix import PlannedDuel
from benchcore.state import State as StateFolder
from flows.shards import measure_in_shards
from tasks import measuring, steps
from tasks.progress import show_progress


def run_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Run a planned campaign to its dashboard. Duels that were measured before are not repeated.

    Raises CampaignIncompleteError at the end if anything was lost on the way.
    """
    for request in steps.list_requests(campaign, root):
        # A failed build is a status of its contenders, told by measure; the campaign goes on.
        steps.provision_environment(request, campaign=campaign, root=root, return_state=True)
    steps.offer_versions(root=root, return_state=True)
    with show_progress(campaign, root, f"progress-{key_artifact(campaign)}") as tell:
        if steps.is_on_slurm(campaign, root):
            lost = measure_in_shards(campaign, root, tell)
        else:
            lost = _measure_all(steps.list_duels(campaign, root), campaign, root, tell)
    if not steps.has_results(campaign, root):
        raise CampaignIncompleteError("no duel left a result: " + "\n".join(lost))
    lost += steps.ingest_results(root=root)
    outcome = conclude_campaign(campaign, root)
    if lost:
        raise CampaignIncompleteError("\n".join(lost))
    return outcome


def conclude_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Check, judge and publish what the database holds of a campaign."""
    marks = steps.check_results(campaign=campaign, root=root)
    ratios = steps.judge_results(campaign=campaign, root=root)
    with transaction():  # what a run's page can't tell of is not on the site either
        page = steps.publish_dashboard(campaign=campaign, root=root)
        if ratios:
            create_table_artifact(key=f"ratios-{key_artifact(campaign)}", table=ratios)
        create_link_artifact(
            key=f"dashboard-{key_artifact(campaign)}",
            link=link_page(campaign, StateFolder(Path(root))),
            link_text="Dashboard",
        )
    return {
        "campaign": campaign,
        "dashboard": page,
        "marks": marks,
        "failures": steps.list_failed(campaign, root),
        "ratios": ratios,
    }


def _measure_all(
    duels: Sequence[PlannedDuel], campaign: str, root: str, tell: Callable[[], None]
) -> list[str]:
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
        tell()
    return lost


def link_page(campaign: str, state: StateFolder) -> str:
    """Where people find a campaign's own page, which stays when another is the site's first: at
    DEADHEAT_DASHBOARD_URL, if the site is served there."""
    page = state.site / campaign / "index.html"
    served = variables.DASHBOARD_URL.read()
    if not served:
        return page.as_uri()
    return f"{served.rstrip('/')}/{page.relative_to(state.site).as_posix()}"


def key_artifact(campaign: str) -> str:
    """Prefect's artifact keys hold lower-case letters, digits and dashes only."""
    return campaign.replace("_", "-").replace(".", "-")
