"""The command `deadheat deploy`: what a Prefect server starts, and when."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from benchcore.profiles import load_profile
from benchcore.sites import load_site
from benchcore.state import State, open_state
from flows.commands.options import STATE, JsonOption, ProfileOption, SiteOption, StateOption
from flows.printing import OUT, print_json
from flows.up_record import settle_server

if TYPE_CHECKING:  # Prefect takes its settings when it is imported
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.deployments.runner import RunnerDeployment

    from tasks.automations import Automations
    from tasks.deployments import Pool


class Drafted(TypedDict):
    """Deployments, the pools that their runs wait in, and automations."""

    wanted: list[RunnerDeployment]
    pool: Pool
    shard_pools: list[WorkPoolCreate]
    automations: Automations


CronOption = Annotated[str, typer.Option("--cron", help="When the night begins, as cron has it.")]
TimezoneOption = Annotated[
    str, typer.Option("--timezone", help="Time zone of --cron, such as Europe/Berlin.")
]
CRON = "0 2 * * *"


def deploy(
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    cron: CronOption = CRON,
    timezone: TimezoneOption = "UTC",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Make the deployments of the Prefect server what they are to be. Again, it changes nothing."""
    opened = open_state(state)
    settle_server(opened)

    from tasks import deployments, offers

    wanted = draft_deployments(opened, site, profile=profile, cron=cron, timezone=timezone)
    done, pool = deployments.deploy(**wanted), wanted["pool"]
    offers.offer_built(opened)
    shard_pools = [each.name for each in wanted["shard_pools"]]
    if as_json:
        print_json({**dataclasses.asdict(done), "pool": pool.name, "shard_pools": shard_pools})
        return
    for name in done.present:
        OUT.print(f"deployed {name}", markup=False, highlight=False)
    for name in done.removed:
        OUT.print(f"removed {name}", markup=False, highlight=False)
    if not done.told:
        OUT.print(
            "Nobody is told of nights that fail or are missing: set DEADHEAT_WEBHOOK_URL, and "
            "deploy again",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    workers = [("Runs", "process", pool.name), *(("Shards", "slurm", each) for each in shard_pools)]
    for what, kind, name in workers:
        OUT.print(
            f"{what} wait for a worker: prefect worker start --type {kind} --pool {name}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def draft_deployments(
    state: State, site: str, *, profile: str, cron: str, timezone: str
) -> Drafted:
    """What is to be deployed, as `tasks.deployments.deploy` takes it. Asks no server. Raises
    UserError."""
    load_profile(profile)
    place = load_site(site)

    from flows.deployed.automations import find_patience, list_automations
    from flows.deployed.deployments import Wanted, list_deployments, list_shard_pools, make_pool

    wanted = Wanted(site=place, profile=profile, cron=cron, timezone=timezone, root=state.root)
    listed = list_deployments(wanted)
    patience = find_patience(cron, timezone)
    return {
        "wanted": listed,
        "pool": make_pool(place),
        "shard_pools": list_shard_pools(wanted),
        "automations": partial(list_automations, patience=patience),
    }
