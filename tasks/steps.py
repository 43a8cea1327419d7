"""How Prefect sees the steps of a campaign: names, retries, tags. Each calls one plain function.

Arguments are short strings, so that a worker on another machine can be given them; everything
else is in the state folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event
from prefect.transactions import Transaction, get_transaction

from benchcore import campaign as steps
from benchcore import matrix, proofs
from benchcore.errors import UserError
from benchcore.profiles import load_profile
from benchcore.sites import load_site
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.frames import duel_frame
from benchcore.store.ingest import ingest_spool
from benchcore.store.outcome import judge_and_list, list_failures
from benchcore.store.proofs import ingest_proofs
from benchcore.store.suspicions import choose_suspicions
from dashboards.campaign import publish_campaign, read_page, withdraw_campaign
from data_checks.campaign import check_campaign
from tasks.measuring import is_infrastructure
from tasks.offers import offer_built
from tasks.wide import ask_histories


@task(task_run_name="plan-{profile}", cache_policy=NO_CACHE)
def plan_campaign(
    profile: str, *, site: str, campaign: str, root: str, python: str | None, pool: str | None
) -> None:
    """Fix tonight's versions, unless the campaign has a plan already."""
    state = open_state(Path(root))
    steps.plan_campaign(
        load_profile(profile), site=site, campaign=campaign, state=state, python=python, pool=pool
    )


@task(
    task_run_name="environment-{request}",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure,
)
def provision_environment(request: str, *, campaign: str, root: str) -> None:
    """Lock, build and verify the environment of one release."""
    state = open_state(Path(root))
    log = steps.progress_log(state, campaign)
    steps.provision_release(
        steps.load_campaign(state, campaign),
        request,
        state,
        lambda text: log.append(event="environment", request=request, text=text),
    )


@task(cache_policy=NO_CACHE)
def offer_versions(*, root: str) -> None:
    """Whoever asks in a form from now on can choose what was built."""
    offer_built(State(Path(root)))


@task(cache_policy=NO_CACHE)
def ingest_results(*, root: str) -> list[str]:
    """Spool and proofs to database; the documents that were refused, each with its reason."""
    state = open_state(Path(root))
    engine = open_database(state.database_url)
    report, refused = ingest_spool(engine, state), ingest_proofs(engine, state)
    return [*(f"{each.path}: {each.reason}" for each in report.rejected), *refused]


@task(cache_policy=NO_CACHE)
def check_results(*, campaign: str, root: str) -> int:
    """Let Great Expectations decide what counts; how many marks it left."""
    engine = open_database(open_state(Path(root)).database_url)
    return len(check_campaign(engine, campaign).marks)


@task(cache_policy=NO_CACHE)
def judge_results(*, campaign: str, root: str) -> list[dict[str, Any]]:
    """Ratios with intervals and verdicts, as rows of a table; and what histories say of them."""
    state = open_state(Path(root))
    engine = open_database(state.database_url)
    rows = judge_and_list(engine, campaign)
    ask_histories(engine, load_site(steps.load_campaign(state, campaign).site), state)
    return rows


@task(cache_policy=NO_CACHE)
def publish_dashboard(*, campaign: str, root: str) -> str:
    """Make the static dashboard; the path of its first page. A transaction around it that fails
    takes it back."""
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
    duels = duel_frame(open_database(open_state(Path(root)).database_url))
    if duels.empty:
        raise UserError("wanted a campaign to publish, but none has left a result; run one first")
    return str(duels.sort_values("started_at", kind="stable")["campaign"].iloc[-1])


def report_suspicions(campaign: str, root: str) -> int:
    """Say that suspicions are open, to whoever has an automation for it; how many are."""
    found = choose_suspicions(open_database(State(Path(root)).database_url))
    if found and os.environ.get("PREFECT_API_URL"):
        emit_event(
            "deadheat.suspicions.open",
            resource={"prefect.resource.id": f"deadheat.campaign.{campaign}"},
            payload={"suspicions": found},
        )
    return len(found)


def list_failed(campaign: str, root: str) -> list[dict[str, Any]]:
    """The contenders that did not end well."""
    return list_failures(open_database(State(Path(root)).database_url), campaign)


def list_requests(campaign: str, root: str) -> list[str]:
    """The version requests of a campaign's plan."""
    return list(steps.load_campaign(State(Path(root)), campaign).releases)


def list_proofs(campaign: str, root: str) -> list[tuple[str, str]]:
    """What the campaign's duels need proven: (workload, precision)."""
    state = State(Path(root))
    wanted = proofs.of_campaign(steps.load_campaign(state, campaign), state)
    return list(dict.fromkeys((each.workload, each.precision) for each in wanted))


def list_duels(campaign: str, root: str) -> list[matrix.PlannedDuel]:
    """The duels of a campaign's plan."""
    return list(steps.load_campaign(State(Path(root)), campaign).duels)


def has_results(campaign: str, root: str) -> bool:
    """Whether any duel of a campaign left a document."""
    state = State(Path(root))
    plan = steps.load_campaign(state, campaign)
    return any(steps.is_measured(state, plan, duel) for duel in plan.duels)


def is_on_slurm(campaign: str, root: str) -> bool:
    """Whether a campaign's duels are measured in a Slurm cluster's allocations."""
    return load_site(steps.load_campaign(State(Path(root)), campaign).site).kind == "slurm"
