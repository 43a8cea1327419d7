"""Runs a flow in this process and shows its progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from benchcore.errors import UserError
from benchcore.planning import matrix
from benchcore.running.finished import load_outcome, store_outcome
from benchcore.running.plans import campaign_folder, progress_log, save_campaign
from benchcore.running.progress import ProgressReader
from benchcore.running.verify.preflight import probe_prefect_api
from benchcore.state import State
from benchcore.store.database import check_database
from flows.cli.printing import ERR, print_error, report_line
from flows.cli.progress_display import follow_campaign
from flows.server.instance import set_auth_string
from flows.server.temporary_api import set_prefect_defaults, start_temporary_api


def run_flow(
    run: Callable[[], dict[str, Any]], state: State, name: str, request: Sequence[object] = ()
) -> dict[str, Any]:
    """Run a campaign's flow with its progress on stderr; its outcome.

    Where the same `request` finished before and nothing changed since, nothing runs: no server.
    """
    _check_services(state)
    set_prefect_defaults(state)
    set_auth_string(state)
    os.environ["DEADHEAT_STATE"] = str(state.root)
    if outcome := load_outcome(state, name, request):
        text = f"nothing changed since {name} was published; `deadheat report {name}` repeats that"
        ERR.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)
        return outcome
    outcome = _run(run, state, name)
    store_outcome(state, name, request, outcome)
    return outcome


def _run(run: Callable[[], dict[str, Any]], state: State, name: str) -> dict[str, Any]:
    log = progress_log(state, name)
    log.append(event="campaign", what="begun")
    plan_path = campaign_folder(state, name) / "plan.json"
    reader = ProgressReader(log.path, from_now=True)
    with follow_campaign(
        lambda: matrix.load_plan(plan_path) if plan_path.exists() else None, reader, ERR
    ):
        return _until_interrupted(run)


def _until_interrupted(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        start_temporary_api()
        return run()
    except KeyboardInterrupt:
        print_error("interrupted; rerun the same command to resume")
        raise typer.Exit(130) from None


def measure_plan(
    plan: matrix.Plan, state: State, pool: str | None = None, *, wait_s: float = 0.0
) -> dict[str, Any]:
    """Save a plan and measure it with its progress on stderr; the flow's outcome.

    Raises UserError as `save_campaign` does.
    """
    saved = save_campaign(plan, state, pool)

    def measure() -> dict[str, Any]:
        from flows.measure import measure as flow
        from tasks.campaign_run import read_outcome

        ended = flow(campaign=saved.campaign, wait_minutes=wait_s / 60, return_state=True)
        return read_outcome(ended)

    return run_flow(measure, state, saved.campaign)


@dataclass(frozen=True)
class ConsoleMeasurer:
    """Measures each round of an experiment as a flow in this process, and reports on stderr."""

    state: State

    def measure(self, plan: matrix.Plan, title: str) -> None:
        """As `benchcore.experiments.rounds.Measurer`."""
        self.report(title)
        measure_plan(plan, self.state)

    def report(self, text: str) -> None:
        """One line on stderr."""
        report_line(text)


def _check_services(state: State) -> None:
    """Before anything is measured: will the results find their database, and the flow its API?"""
    check_database(state.database_url)
    api = probe_prefect_api(os.environ.get("PREFECT_API_URL"))
    if not api.usable:
        raise UserError(
            f"wanted the Prefect API that PREFECT_API_URL names, but {api.detail}; "
            "start it, or unset PREFECT_API_URL to use a temporary server"
        )
