"""Experiments whose flows are long forms: run in rounds, and shown as tables on the run's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.changes.bisect import (
    BisectRequest,
    is_undecided,
    list_rounds,
    run_bisection,
)
from benchcore.experiments.changes.pairs import BisectTarget
from benchcore.experiments.releases.backfill import (
    CHANGE_COLUMNS,
    describe_changes,
    describe_measured,
    find_versions,
    judge_backfill,
    list_changes,
    list_versions,
    plan_backfill,
)
from benchcore.experiments.rounds import RunContext, check_looks, make_context
from benchcore.running.plans import is_planned
from benchcore.state import State, default_root, open_state
from tasks.artifacts import name_key, show_table
from tasks.campaign_run import TaskMeasurer, run_campaign


def search_version(
    target: BisectTarget,
    profile: str,
    site: str,
    *,
    looks: Sequence[int] | None,
    dependencies: bool,
    event: int | None,
) -> RunState[Any]:
    """Bisect, and show the rounds. The run fails if the search is undecided or can't begin."""
    state = open_state(default_root())
    try:
        request = BisectRequest(
            target=target,
            looks=check_looks(looks),
            context=make_context(profile, site),
            dependencies=dependencies,
            event=event,
        )
        found = run_bisection(request, state, TaskMeasurer(state))
    except UserError as error:
        return Failed(message=str(error))
    show_table("bisection", list_rounds(found), found["summary"])
    return (Failed if is_undecided(found) else Completed)(message=found["summary"])


def plan_past(
    framework: str, below: str | None, count: int, context: RunContext, campaign: str, state: State
) -> None:
    """Plan a backfill, unless that was done before, and show its versions. Raises UserError."""
    if is_planned(state, campaign):
        return
    past = find_versions(framework, below=below, count=count)
    show_table(name_key("versions", campaign), list_versions(past))
    plan_backfill(framework, past, context, campaign, state)


def measure_past(framework: str, campaign: str, budget_s: float, state: State) -> RunState[Any]:
    """Measure a planned backfill, and show what each version changed. If a duel was lost the rest
    is judged, and the run fails."""
    lost = ""
    try:
        outcome = run_campaign(campaign, str(state.root))
    except CampaignIncompleteError as error:
        if error.outcome is None:
            raise
        outcome, lost = error.outcome, f"; not measured completely: {error}"
    found = judge_backfill(framework, campaign, budget_s, state, TaskMeasurer(state))
    rows, text = list_changes(found), "\n\n".join(describe_changes(found))
    show_table(name_key("changes", campaign), rows, text, CHANGE_COLUMNS)
    text = describe_measured(framework, campaign, outcome["failures"], state) + lost
    return Failed(message=text) if lost or outcome["failures"] else Completed(message=text)
