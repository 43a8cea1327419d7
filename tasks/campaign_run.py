"""Runs a planned campaign: environments, duels, ingest, verdicts, dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefect import unmapped
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.transactions import transaction

from benchcore import variables
from benchcore.errors import CampaignIncompleteError
from benchcore.planning.matrix import PlannedDuel
from benchcore.state import State as StateFolder
from tasks import measurement, pipeline
from tasks.artifacts import name_key, show_progress
from tasks.slurm_shards import measure_in_shards


def run_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Run a planned campaign to its dashboard. Measured duels are not repeated.

    Raises CampaignIncompleteError at the end if a duel has no result.
    """
    # A failed build becomes a status of its contenders; the campaign continues.
    pipeline.provision_environment.map(
        pipeline.list_requests(campaign, root), campaign=unmapped(campaign), root=unmapped(root)
    ).wait()
    pipeline.offer_versions(root=root, return_state=True)
    with show_progress(campaign, root) as update:
        if pipeline.is_on_slurm(campaign, root):
            lost = measure_in_shards(campaign, root, update)
        else:
            lost = _measure_all(pipeline.list_duels(campaign, root), campaign, root, update)
    if not pipeline.has_results(campaign, root):
        raise CampaignIncompleteError("no duel left a result: " + "\n".join(lost))
    lost += pipeline.ingest_results(root=root)
    outcome = conclude_campaign(campaign, root)
    if lost:
        raise CampaignIncompleteError("\n".join(lost))
    return outcome


def conclude_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Check, judge and publish a campaign's results from the database."""
    marks = pipeline.check_results(campaign=campaign, root=root)
    ratios = pipeline.judge_results(campaign=campaign, root=root)
    with transaction():  # if publishing the artifacts fails, the page is withdrawn
        page = pipeline.publish_dashboard(campaign=campaign, root=root)
        if ratios:
            create_table_artifact(key=name_key("ratios", campaign), table=ratios)
        create_link_artifact(
            key=name_key("dashboard", campaign),
            link=link_page(campaign, StateFolder(Path(root))),
            link_text="Dashboard",
        )
    return {
        "campaign": campaign,
        "dashboard": page,
        "marks": marks,
        "failures": pipeline.list_failed(campaign, root),
        "ratios": ratios,
        "notes": pipeline.list_notes(campaign, root),
    }


def _measure_all(
    duels: Sequence[PlannedDuel], campaign: str, root: str, update: Callable[[], None]
) -> list[str]:
    """Measure every duel in a task run of its own; the reasons of those without a result."""
    for workload, precision in pipeline.list_proofs(campaign, root):
        # Without a proof the checks exclude its pairs; the campaign continues.
        measurement.prove_workload(
            workload, precision, campaign=campaign, root=root, return_state=True
        )
    lost: list[str] = []
    for duel in duels:
        ended: State[Any] = measurement.measure_duel(
            duel.title, duel.duel_run, campaign=campaign, root=root, return_state=True
        )
        if not ended.is_completed():
            lost.append(f"{duel.title}: {ended.message}")
        update()
    return lost


def link_page(campaign: str, state: StateFolder) -> str:
    """The URL of a campaign's own page, which later campaigns do not replace: under
    DEADHEAT_DASHBOARD_URL if it is set, else of the file."""
    page = state.site / campaign / "index.html"
    served = variables.DASHBOARD_URL.read()
    if not served:
        return page.as_uri()
    return f"{served.rstrip('/')}/{page.relative_to(state.site).as_posix()}"
