"""The command `deadheat calibration`: how often our own verdicts err, and more trials on demand."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from benchcore.campaign import draft_plan
from benchcore.errors import UserError
from benchcore.profiles import load_profile
from benchcore.state import State, open_state
from benchcore.store.calibration import measure_calibration
from benchcore.store.database import open_database
from benchcore.verdict.calibration import STARTS
from dashboards.calibration import answer_calibration, list_rates, list_smallest, list_trials
from flows.commands.options import STATE, JsonOption, ProfileOption, SiteOption, StateOption
from flows.printing import OUT, print_json, print_rows
from flows.running import Runner, measure_plan, run_flow

_MOST_TRIALS = 1000


def calibration(
    measure: Annotated[
        int, typer.Option("--measure", min=0, max=_MOST_TRIALS, help="Measure so many more first.")
    ] = 0,
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Tell how often our own alarms err, from trials whose truth is known: every night has some."""
    opened = open_state(state)
    if measure:
        measure_trials(measure, profile, site, opened, run_flow)
    found = measure_calibration(open_database(opened.database_url))
    if as_json:
        print_json(found)
        return
    OUT.print(answer_calibration(found), highlight=False)
    if found["trials"]:
        print_rows(
            list_trials(found),
            ("series", "truth", "measured", "starts", "outcome", "blamed"),
            title="Trials, the newest first",
        )
        columns = ("what", "of", "count", "share", "note")
        print_rows(list_rates(found), columns, title="How often our own alarms err; 95 % intervals")
    if found["smallest"]:
        columns = ("series", "smallest", "nights", "starts")
        title = "The smallest change that a confirmation's first 5 starts find in 4 of 5 cases"
        print_rows(list_smallest(found), columns, title=title)
    for reason in dict.fromkeys(found["lost"]):
        OUT.print(f"a start does not count: {reason}", markup=False, soft_wrap=True)


def measure_trials(count: int, profile: str, site: str, state: State, run: Runner) -> None:
    """Whole trials, in a campaign of their own; their numbers come after those of any night.
    Raises UserError."""
    chosen = load_profile(profile)
    if not chosen.trials:
        raise UserError(
            f"wanted a profile with trials, got {profile!r}, which has none; choose laptop or h100"
        )
    first = int(time.time())
    plan = draft_plan(
        replace(chosen, matches=()),
        site=site,
        campaign=f"calibration-{first}",
        trials=range(first * STARTS, (first + count) * STARTS),
    )
    run(measure_plan(plan, state), state, plan.campaign)
