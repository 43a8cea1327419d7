"""Runs a planned campaign: environments, duels, ingest, verdicts, dashboard. Each round of an
experiment is such a campaign, in a task of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger, tags, task, unmapped
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed
from prefect.transactions import transaction

from benchcore import variables
from benchcore.errors import CampaignIncompleteError
from benchcore.planning.matrix import Plan
from benchcore.running.disturbances import (
    is_set_aside,
    recover_set_aside,
    restore_better_documents,
    set_aside_void,
    wait_for_quiet,
)
from benchcore.running.duels import is_measured
from benchcore.running.equivalence import list_campaign_proofs
from benchcore.running.plans import load_campaign, progress_log, save_campaign
from benchcore.running.sites import load_site
from benchcore.state import State
from benchcore.store.database import is_disk_full, open_database
from benchcore.store.reports.campaign import list_failures
from benchcore.store.reports.void import explain_void
from dashboards.readme import update_readme
from tasks import measurement, pipeline
from tasks.artifacts import WAITED, name_key, show_progress
from tasks.live_updates import LiveUpdates
from tasks.slurm.shards import measure_in_shards

VOID = "Void"
"""The state of a run in which nothing counts; Prefect shows it as failed."""


def end_run(outcome: dict[str, Any]) -> RunState[Any]:
    """The state with which a campaign's flow run ends, with the reason if nothing counts."""
    if outcome["void"]:
        return Failed(name=VOID, message=outcome["void"], data=outcome)
    return Completed(data=outcome)


def read_outcome(ended: RunState[Any]) -> dict[str, Any]:
    """The outcome of a campaign's flow run, void or not. Raises what stopped the run."""
    outcome = ended.result(raise_on_failure=ended.name != VOID, **WAITED)
    assert isinstance(outcome, dict), "as `end_run` stored it"
    return outcome


def run_campaign(campaign: str, root: str, *, wait_s: float = 0.0) -> dict[str, Any]:
    """Measure a planned campaign and publish it. Measured duels are not repeated, except those that
    others disturbed throughout, or that lack an environment which is built now. On site `local` it
    first waits up to this long for a quiet machine.

    Raises CampaignIncompleteError at the end if a planned duel has no result, with the outcome of
    the others.
    """
    state = State(Path(root))
    plan = load_campaign(state, campaign)
    if recovered := recover_set_aside(state, plan):
        _warn([f"an earlier run was ended before it measured again: {each}" for each in recovered])
        _warn(pipeline.ingest_results(root=root))
    _warn(_compare_set_aside(plan, state))
    # A failed build becomes a status of its contenders; the campaign continues.
    pipeline.provision_environment.map(
        list(plan.releases), campaign=unmapped(campaign), root=unmapped(root)
    ).wait()
    pipeline.update_forms(root=root, return_state=True)
    aside = set_aside_void(state, plan)
    _warn([f"measuring again, as {each.reason}: {each.duel.title}" for each in aside])
    live = LiveUpdates(campaign, root)
    with show_progress(campaign, root) as update:

        def report_ended() -> None:
            update()
            live.update()

        if load_site(plan.site).kind == "slurm":
            lost = measure_in_shards(campaign, root, report_ended)
        else:
            _await_quiet(plan, state, wait_s)
            lost = _measure_all(plan, state, report_ended)
    lost += _compare_set_aside(plan, state)
    if not any(is_measured(state, plan, duel) for duel in plan.duels):
        raise CampaignIncompleteError("no duel left a result: " + "\n".join(lost))
    lost += live.rejected + pipeline.ingest_results(root=root)
    outcome = conclude_campaign(campaign, root)
    lost = lost or outcome["problems"]
    if lost:
        raise CampaignIncompleteError("\n".join(lost), outcome)
    return outcome


def _compare_set_aside(plan: Plan, state: State) -> list[str]:
    """Put back what was set aside, by this run or one that was killed, and is better than what was
    measured since; the documents that the database refused."""
    if not is_set_aside(state, plan):
        return []
    refused = pipeline.ingest_results(root=str(state.root))
    if kept := restore_better_documents(state, plan):
        _warn([f"the earlier measurement stays, as more of it counts: {each}" for each in kept])
        refused += pipeline.ingest_results(root=str(state.root))
    return refused


def conclude_campaign(campaign: str, root: str) -> dict[str, Any]:
    """Check, judge and publish a campaign's results from the database."""
    state = State(Path(root))
    checked = pipeline.check_results(campaign=campaign, root=root)
    ratios = pipeline.judge_results(campaign=campaign, root=root)
    engine = open_database(state.database_url)
    void = explain_void(engine, campaign)
    _warn([void] if void else [])
    with transaction():  # if publishing the artifacts fails, the page is withdrawn
        page = pipeline.publish_dashboard(campaign=campaign, root=root)
        if ratios:
            create_table_artifact(key=name_key("ratios", campaign), table=ratios, description=void)
        create_link_artifact(
            key=name_key("dashboard", campaign),
            link=state.link_page(campaign),
            link_text="Dashboard",
            description=void,
        )
        if (state.data_docs(campaign) / "index.html").exists():
            create_link_artifact(
                key=name_key("data-docs", campaign),
                link=state.link(f"{campaign}/checks/index.html"),
                link_text="Data Docs of the checks",
            )
    unwritten = update_readme(state)
    _warn([unwritten] if unwritten else [])
    if variables.WANDB.read():  # a campaign never fails for it
        pipeline.send_to_wandb(campaign=campaign, root=root, return_state=True)
    return {
        "campaign": campaign,
        "void": void,
        "dashboard": page,
        **checked,
        "failures": list_failures(engine, campaign),
        "ratios": ratios,
        "notes": list(load_campaign(state, campaign).notes),
    }


def _warn(lines: Sequence[str]) -> None:
    """Write warnings into the flow run's log."""
    for each in lines:
        get_run_logger().warning(each)


def _await_quiet(plan: Plan, state: State, wait_s: float) -> None:
    """Report a busy machine before the first duel, and wait up to this long until it is quiet."""
    if all(is_measured(state, plan, duel) for duel in plan.duels):
        return
    log = progress_log(state, plan.campaign)

    def report(text: str) -> None:
        _warn([text])
        log.append(event="machine", text=text)

    wait_for_quiet(wait_s, report)


def _measure_all(plan: Plan, state: State, update: Callable[[], None]) -> list[str]:
    """Measure every duel in a task run of its own; the reasons of those without a result."""
    where = {"campaign": plan.campaign, "root": str(state.root)}
    limited = measurement.find_measure_tags()
    proofs = list_campaign_proofs(plan, state)
    for workload, precision in dict.fromkeys((each.workload, each.precision) for each in proofs):
        # Without a proof the checks exclude its pairs; the campaign continues.
        with tags(*limited):
            measurement.prove_workload(workload, precision, **where, return_state=True)
    lost: list[str] = []
    for duel in plan.duels:
        with tags(*limited):
            ended: RunState[Any] = measurement.measure_duel(
                duel.title, duel.duel_run, **where, return_state=True
            )
        if not ended.is_completed():
            error = ended.result(raise_on_failure=False, **WAITED)
            if isinstance(error, Exception) and is_disk_full(error):
                raise error  # no further duel could be kept
            lost.append(f"{duel.title}: {ended.message}")
        update()
    return lost


@task(task_run_name="{title}", cache_policy=NO_CACHE)
def measure_round(title: str, *, campaign: str, root: str) -> None:
    """Run a round's campaign to its dashboard; run again, only missing duels are measured."""
    run_campaign(campaign, root)


@dataclass(frozen=True)
class TaskMeasurer:
    """The `benchcore.experiments.rounds.Measurer` of a flow."""

    state: State

    def measure(self, plan: Plan, title: str) -> None:
        """Save the plan, and run it as a task with that title."""
        saved = save_campaign(plan, self.state)
        measure_round(title, campaign=saved.campaign, root=str(self.state.root))

    def report(self, text: str) -> None:
        """One line in the flow run's log."""
        get_run_logger().info(text)
