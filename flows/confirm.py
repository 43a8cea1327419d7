"""Confirm suspicions: what `deadheat confirm` does, as a flow."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.errors import UserError
from benchcore.experiments.changes.confirm import (
    COLUMNS,
    ConfirmRequest,
    count_verdicts,
    run_confirmation,
)
from benchcore.experiments.rounds import check_looks, make_context
from benchcore.state import default_root, open_state
from dashboards.publish import refresh_pages
from tasks.alerts import draw_suspicion, emit_shift, use_stored_addresses
from tasks.artifacts import show_table
from tasks.campaign_run import TaskMeasurer
from tasks.form import Looks, Minutes, ProfileName, SiteName, SuspicionIds


@flow(name="confirm", validate_parameters=True)
def confirm(
    suspicions: SuspicionIds | None = None,
    budget_minutes: Minutes = 60,
    looks: Looks | None = None,
    profile: ProfileName = "laptop",
    site: SiteName = "local",
) -> RunState[Any]:
    """Measure suspected changes again, old environments against new, and find which framework
    changed.

    Args:
        suspicions: Ids from `deadheat suspicions`; empty for all open ones, highest expected change
            per second of measuring first.
        budget_minutes: Measure no further suspicion after this many minutes.
        looks: Judge after these numbers of starts, in growing order; empty for 5, 8 and 12.
        profile: Limits of the measurement; the suspicions determine what is measured.
        site: Where to measure.
    """
    state = open_state(default_root())
    try:
        request = ConfirmRequest(
            suspicions=tuple(suspicions or ()),
            looks=check_looks(looks),
            budget_s=60 * budget_minutes,
            context=make_context(profile, site),
        )
        use_stored_addresses()
        found = run_confirmation(request, state, TaskMeasurer(state), draw_suspicion(state))
    except UserError as error:
        return Failed(message=str(error))
    for each in found.alerts:
        emit_shift(each)
    if found.alerts:
        refresh_pages(state)  # the alerts link to their events
    summary = count_verdicts(found.rows)
    show_table("confirmation", found.rows, summary, COLUMNS)
    return Failed(message="; ".join(found.unsent)) if found.unsent else Completed(message=summary)
