"""The tasks of a campaign, from plan to dashboard. Each calls one plain function and adds its name
and retries.

Arguments are short strings, so that a task can run on another machine; everything else is in the
state folder.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as RunState
from prefect.client.schemas.objects import TaskRun
from prefect.events import emit_event
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from prefect.transactions import Transaction, get_transaction

from benchcore.errors import UserError
from benchcore.experiments.alerting.alerts import PAYLOAD, describe_broken
from benchcore.planning.profiles import load_profile
from benchcore.planning.requests import Placement
from benchcore.running import plans
from benchcore.running.duels import provision_release
from benchcore.running.plans import load_campaign, progress_log
from benchcore.running.retention import list_unneeded
from benchcore.state import State, open_state
from benchcore.store.database import Engine, is_unreachable, open_database
from benchcore.store.duels import (
    find_newest_campaign,
    judge_campaign,
    list_unchecked_campaigns,
)
from benchcore.store.history.history_documents import load_history, save_history
from benchcore.store.history.suspicions import choose_suspicions, refresh_suspicions
from benchcore.store.incoming.environment_locks import ingest_locks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.proofs import ingest_proofs
from benchcore.store.reports.broken import list_broken
from benchcore.store.reports.campaign import judge_and_list
from dashboards.publish import publish_campaign, read_page, remove_files, withdraw_campaign
from dashboards.to_wandb.runs import LIMIT_S as WANDB_LIMIT_S
from dashboards.to_wandb.runs import send_runs, write_run
from tasks.alerts import alert as send_alert
from tasks.alerts import send_events
from tasks.limits import LIMIT_S
from tasks.measurement import is_infrastructure
from tasks.server import available_versions


async def is_outage(_task: Task[..., Any], _run: TaskRun, state: RunState[Any]) -> bool:
    """Whether to retry: the database's server was away, and may come back."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, Exception) and is_unreachable(error)


_PATIENT: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "timeout_seconds": LIMIT_S,
    "retries": 3,
    "retry_delay_seconds": [2, 10, 30],
    "retry_condition_fn": is_outage,
}
"""Options of tasks that use the database and are safe to rerun."""


@task(task_run_name="plan-{profile}", **_PATIENT)
def plan_campaign(
    profile: str, placement: Placement, *, root: str, hours: float | None, night: date
) -> None:
    """Plan the campaign of a night with today's versions, unless it has a plan."""
    state = open_state(Path(root))
    plans.plan_campaign(load_profile(profile), placement, state, hours=hours, night=night)


@task(
    task_run_name="environment-{request}",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure,
)
def provision_environment(request: str, *, campaign: str, root: str) -> RunState[None]:
    """Lock, build and verify the environment of one release."""
    state = open_state(Path(root))
    log = progress_log(state, campaign)
    record = provision_release(
        load_campaign(state, campaign),
        request,
        state,
        lambda text: log.append(event="environment", request=request, text=text),
    )
    return Completed(message=f"{request}: {record.name}")


@task(task_run_name="update-forms", cache_policy=NO_CACHE, timeout_seconds=LIMIT_S)
def update_forms(*, root: str) -> None:
    """List the versions built here in the forms of Prefect's UI."""
    available_versions.update_forms(State(Path(root)))


@task(task_run_name="ingest", **_PATIENT)
def ingest_results(*, root: str) -> list[str]:
    """Ingest spool and proofs into the database; the refused documents, each with its reason."""
    state = open_state(Path(root))
    engine = open_database(state.database_url)
    report = ingest_spool(engine, state, only_new=True)
    ingest_locks(engine, state)
    refused = ingest_proofs(engine, state, only_new=True)
    refused += load_history(engine, state)  # into a new database
    return [*(f"{each.path}: {each.reason}" for each in report.rejected), *refused]


@task(task_run_name="check-{campaign}", **_PATIENT)
def check_results(*, campaign: str, root: str) -> dict[str, Any]:
    """Check the results with Great Expectations: how many checks failed (`failed`) or only warn
    (`warnings`), and `problems` that belong to no row."""
    from data_checks.check import check_campaign  # Great Expectations takes seconds to import

    state = open_state(Path(root))
    engine = open_database(state.database_url)
    planned = load_campaign(state, campaign).duels
    report = check_campaign(engine, campaign, state.data_docs(campaign), planned)
    counts = Counter(each.severity for each in report.failed_checks)
    return {
        "failed": counts["critical"],
        "warnings": counts["warning"],
        "problems": list(report.problems),
    }


@task(task_run_name="judge-{campaign}", **_PATIENT)
def judge_results(*, campaign: str, root: str) -> list[dict[str, Any]]:
    """Judge the ratios, as rows of a table, and refresh the suspicions."""
    state = open_state(Path(root))
    engine = open_database(state.database_url)
    _catch_up(engine, campaign)
    rows = judge_and_list(engine, campaign)
    refresh_suspicions(engine, campaign=campaign)
    save_history(engine, state)
    return rows


def _catch_up(engine: Engine, campaign: str) -> None:
    """Check and judge what was only ingested, as into the database that follows a lost one: open
    suspicions would end without the nights that they rest on. What can't be checked stays so."""
    from data_checks.check import check_campaign
    from data_checks.validation import CheckError

    for other in list_unchecked_campaigns(engine):
        if other == campaign:
            continue
        try:
            check_campaign(engine, other)
        except CheckError as error:
            get_run_logger().warning(f"{other} could not be checked: {error}")
            continue
        judge_campaign(engine, other)


@task(task_run_name="publish-{campaign}", **_PATIENT)
def publish_dashboard(*, campaign: str, root: str) -> str:
    """Publish the campaign on the dashboard; the path of its page. If the transaction around it
    fails, the page is withdrawn."""
    state = open_state(Path(root))
    transaction = get_transaction()
    assert transaction is not None, "Prefect runs every task in one"
    transaction.set("published", (root, campaign, read_page(state, campaign)))
    return str(publish_campaign(state, campaign))


@publish_dashboard.on_rollback
def _withdraw(transaction: Transaction) -> None:
    root, campaign, before = transaction.get("published")
    withdraw_campaign(State(Path(root)), campaign, before)


def find_newest(root: str) -> str:
    """The newest campaign of the database. Raises UserError if there is none."""
    found = find_newest_campaign(open_database(open_state(Path(root)).database_url))
    if found is None:
        raise UserError("wanted a campaign to publish, but none has left a result; run one first")
    return found


def report_suspicions(campaign: str, root: str) -> int:
    """Emit an event if suspicions are open, for Prefect's automations; the number of open ones."""
    found = choose_suspicions(open_database(State(Path(root)).database_url))
    if found and os.environ.get("PREFECT_API_URL"):
        emit_event(
            "deadheat.suspicions.open",
            resource={"prefect.resource.id": f"deadheat.campaign.{campaign}"},
            payload={"suspicions": found},
        )
    return len(found)


def report_void(outcome: dict[str, Any], root: str) -> None:
    """Emit an event, and send an alert, if nothing of the night counts."""
    if outcome["void"] is not None:
        _send_of_night("void", outcome["campaign"], outcome["void"], State(Path(root)))


def report_broken(campaign: str, root: str) -> None:
    """Send an alert about what has failed for two nights, and ran before."""
    state = State(Path(root))
    rows = list_broken(open_database(state.database_url), campaign)
    if rows:
        _send_of_night("broken", campaign, describe_broken(rows), state)


def _send_of_night(kind: Literal["void", "broken"], campaign: str, text: str, state: State) -> None:
    """Emit the event `deadheat.night.KIND` and send its alert, with the command that runs the night
    again."""
    plan = load_campaign(state, campaign)
    pool = f" --pool {plan.pool}" if plan.pool else ""
    payload: dict[str, Any] = {
        **dict.fromkeys(PAYLOAD),
        "text": text,
        "campaign": campaign,
        "dashboard": state.link_page(campaign),
        "again": f"deadheat nightly --profile {plan.profile} --site {plan.site}{pool} "
        f"--campaign {campaign}",
    }
    if os.environ.get("PREFECT_API_URL"):
        emit_event(
            f"deadheat.night.{kind}",
            resource={"prefect.resource.id": f"deadheat.campaign.{campaign}"},
            payload=payload,
        )
    send_alert(f"{kind}-{campaign}", text, payload, str(state.root))


def find_night(timezone: str) -> date:
    """The date for which this run was scheduled, in this time zone. A run may start after midnight,
    because it waits for another one. In UTC two nights of a schedule at 1:00 in Berlin have one
    date when summer time begins."""
    return flow_run.scheduled_start_time.astimezone(ZoneInfo(timezone)).date()


def end_night(
    campaign: str, root: str, keep_nights: int | None, outcome: dict[str, Any] | None
) -> None:
    """Report a night in which nothing counts, what broke, its suspicions, and the events that it
    closed. Send alerts that wait. Remove what only nights before the newest `keep_nights` need,
    unless None. `outcome` is None if the night has no result."""
    if outcome is not None:
        report_void(outcome, root)
        report_broken(campaign, root)
    report_suspicions(campaign, root)
    send_events(root)
    if keep_nights is not None:
        prune_state(keep_nights, root=root)


@task(task_run_name="prune", **_PATIENT)
def prune_state(keep_nights: int, *, root: str) -> RunState[int]:
    """Remove what only older nights need; the bytes freed."""
    state = State(Path(root))
    freed = remove_files(state, list_unneeded(state, keep_nights))
    return Completed(message=f"{freed / 1e6:,.1f} MB freed", data=freed)


@task(task_run_name="wandb-{campaign}", cache_policy=NO_CACHE)
def send_to_wandb(*, campaign: str, root: str) -> RunState[None]:
    """Send the campaign to W&B, after the runs that wait. An unsent one waits for the next."""
    state = open_state(Path(root))
    write_run(state, campaign, WANDB_LIMIT_S)
    reason = send_runs(state, WANDB_LIMIT_S)
    if reason is not None:
        return Failed(message=f"{reason}; `deadheat wandb sync` sends it later")
    return Completed(message=f"{campaign} was sent")
