"""The command `deadheat shard`: what a Slurm site's shards are submitted as."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchcore.sites import find_pool, load_site
from benchcore.slurm.batch_script import BatchJob, shard_command, write_batch_script
from flows.options import STATE, JsonOption, SiteOption, StateOption
from flows.printing import print_json

shard = typer.Typer(help="Show what a Slurm site's shards are submitted as.", no_args_is_help=True)
_PoolOption = Annotated[
    str | None, typer.Option("--pool", help="Pool of the site; default: its only one.")
]


@shard.callback()
def _group() -> None:
    """Without it a group of one command would lose that command's name."""


@shard.command()
def show(
    site: SiteOption,
    pool: _PoolOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Print the batch script of a shard. Submits nothing."""
    job = _draft_job(site, pool, state)
    script = write_batch_script(job)
    if as_json:
        print_json({"site": site, "allocation": job.allocation.model_dump(), "script": script})
    else:
        sys.stdout.write(script)


def _draft_job(site: str, pool: str | None, state: Path) -> BatchJob:
    place = load_site(site)
    return BatchJob(
        name="deadheat-shard",
        allocation=find_pool(place, pool),
        folder=place.state or str(state.expanduser().absolute()),
        command=shard_command(),
    )
