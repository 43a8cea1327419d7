"""Runs a flow in this process and shows its progress."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import typer

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.checkpoints import find_weights
from benchcore.errors import UserError
from benchcore.progress import ProgressReader
from benchcore.sites import find_pool, load_site
from benchcore.state import State
from flows.display import follow_campaign
from flows.orchestrator import settle_prefect, start_temporary_api
from flows.printing import ERR, complain
from flows.up_record import settle_auth

Runner = Callable[[Callable[[], dict[str, Any]], State, str], object]
"""Runs the flow of a campaign, as `run_flow` does."""


def run_flow(run: Callable[[], dict[str, Any]], state: State, name: str) -> dict[str, Any]:
    """Run a campaign's flow with its progress on stderr; what came of it."""
    _check_services(state)
    settle_prefect(state)
    settle_auth(state)
    os.environ["DEADHEAT_STATE"] = str(state.root)
    log = steps.progress_log(state, name)
    log.append(event="campaign", what="begun")
    plan_path = steps.campaign_folder(state, name) / "plan.json"
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
        complain("interrupted; the same command goes on where this one stopped")
        raise typer.Exit(130) from None


def measure_plan(
    plan: matrix.Plan, state: State, pool: str | None = None
) -> Callable[[], dict[str, Any]]:
    """Save a plan that is new; the flow that measures it, in a pool of its site. Raises UserError
    where weights lack."""
    check_site(plan.site, pool)
    plan = dataclasses.replace(plan, pool=pool or plan.pool)
    for checkpoint in {duel.checkpoint for duel in plan.duels} - {None}:
        find_weights(state, str(checkpoint))
    matrix.save_plan(plan, steps.campaign_folder(state, plan.campaign) / "plan.json")

    def measure() -> dict[str, Any]:
        from flows.measure import measure as flow

        return flow(campaign=plan.campaign)

    return measure


def check_site(name: str, pool: str | None = None) -> None:
    """Raises UserError for a site or a pool that there is not, or whose shards nobody could be
    given to."""
    site = load_site(name)
    if pool is not None:
        find_pool(site, pool)
    if site.kind == "slurm" and not os.environ.get("PREFECT_API_URL"):
        raise UserError(
            f"wanted a Prefect server, as the shards of site {name!r} are handed to its work pool, "
            "got no PREFECT_API_URL; start one (`prefect server start`) and name it, or choose "
            "--site local"
        )


def _check_services(state: State) -> None:
    """Before anything is measured: will the results find their database, and the flow its API?"""
    from benchcore.preflight import probe_prefect_api
    from benchcore.store.database import check_database

    check_database(state.database_url)
    api = probe_prefect_api(os.environ.get("PREFECT_API_URL"))
    if not api.usable:
        raise UserError(
            f"wanted the Prefect API that PREFECT_API_URL names, but {api.detail}; "
            "start it, or unset PREFECT_API_URL to do without"
        )
