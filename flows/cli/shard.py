"""The command `deadheat shard`: the batch script and job template of a Slurm site."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from benchcore.running.sites import find_pool, load_site
from benchcore.running.slurm.batch_script import BatchJob, shard_command, write_batch_script
from flows.cli import options
from flows.cli.printing import print_json

shard = typer.Typer(
    help="Print what a Slurm site submits: batch script and job template.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@shard.command()
def show(
    site: options.SiteOfPool,
    pool: options.PoolOfSite = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Print the batch script of a shard. Submits nothing."""
    job = _draft_job(site, pool, state)
    script = write_batch_script(job)
    if as_json:
        print_json({"site": site, "allocation": job.allocation.model_dump(), "script": script})
    else:
        sys.stdout.write(script)


@shard.command()
def template(
    site: options.SiteOfPool, pool: options.PoolOfSite = None, state: options.State = options.STATE
) -> None:
    """Print the base job template, as JSON, of a Prefect work pool for a site's pool."""
    from tasks.slurm.worker import pool_template  # Prefect takes 2 s, `show` does without

    job = _draft_job(site, pool, state)
    print_json(pool_template(job.allocation, job.folder))


def _draft_job(site: str, pool: str | None, state: Path) -> BatchJob:
    chosen = load_site(site)
    return BatchJob(
        name="deadheat-shard",
        allocation=find_pool(chosen, pool)[1],
        folder=chosen.state or str(state.expanduser().absolute()),
        command=shard_command(),
    )
