"""The command `deadheat deploy`: what a Prefect server starts, and when."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypedDict

from benchcore.planning.profiles import load_profile
from benchcore.running.sites import load_site
from benchcore.state import State, open_state
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line
from flows.server.instance import use_server_of_up

if TYPE_CHECKING:  # Prefect takes its settings when it is imported
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.deployments.runner import RunnerDeployment

    from tasks.server.apply import Automations, Pool


class Draft(TypedDict):
    """The arguments of `tasks.server.apply.apply`."""

    deployments: list[RunnerDeployment]
    pool: Pool
    shard_pools: list[WorkPoolCreate]
    list_automations: Automations


CronOption = Annotated[
    str, option("--cron", "CRON", "Start the night at these times: five fields of cron.")
]
TimezoneOption = Annotated[
    str, option("--timezone", "ZONE", "Read --cron in this time zone, such as Europe/Berlin.")
]
CRON = "0 2 * * *"


def deploy(
    profile: options.Profile = "laptop",
    site: options.Site = "local",
    cron: CronOption = CRON,
    timezone: TimezoneOption = "UTC",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Create or update the deployments of a Prefect server that is running.

    Safe to rerun. Updates what differs, and removes deployments and automations with the tag
    `deadheat` that are no longer listed.
    """
    opened = open_state(state)
    use_server_of_up(opened)

    from tasks.server.apply import apply
    from tasks.server.available_versions import update_forms

    draft = draft_deployments(opened, site, profile=profile, cron=cron, timezone=timezone)
    done, pool = apply(**draft), draft["pool"]
    update_forms(opened)
    shard_pools = [each.name for each in draft["shard_pools"]]
    if as_json:
        print_json({**dataclasses.asdict(done), "pool": pool.name, "shard_pools": shard_pools})
        return
    lines = [f"deployed {name}" for name in done.present]
    lines += [f"removed {name}" for name in done.removed]
    if not done.alerts:
        lines.append(
            "No alert will report failed or missing nights: set DEADHEAT_WEBHOOK_URL, then deploy "
            "again"
        )
    workers = [("runs", "process", pool.name), *(("shards", "slurm", each) for each in shard_pools)]
    lines += [
        f"Worker for {what}: prefect worker start --type {kind} --pool {name}"
        for what, kind, name in workers
    ]
    for line in lines:
        print_line(line)


def draft_deployments(state: State, site: str, *, profile: str, cron: str, timezone: str) -> Draft:
    """What to apply to a server, which is not contacted. Raises UserError."""
    load_profile(profile)
    chosen = load_site(site)

    from flows.server.automations import compute_missing_after, list_automations
    from flows.server.deployments import (
        DeployOptions,
        list_deployments,
        list_shard_pools,
        make_pool,
    )

    options = DeployOptions(
        site=chosen, profile=profile, cron=cron, timezone=timezone, root=state.root
    )
    return {
        "deployments": list_deployments(options),
        "pool": make_pool(chosen),
        "shard_pools": list_shard_pools(options),
        "list_automations": partial(
            list_automations, missing_after=compute_missing_after(cron, timezone)
        ),
    }
