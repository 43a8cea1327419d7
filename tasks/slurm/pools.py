"""The work pools of a Slurm site: their names, templates, and what a shard's job requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.client.schemas.actions import WorkPoolCreate

from benchcore import variables
from benchcore.running.sites import Site
from benchcore.running.slurm.allocation import Allocation
from tasks.slurm.worker import pool_template


def find_folder(site: Site, root: Path) -> str:
    """The state folder `root` as a site's nodes see it."""
    return site.state or str(root)


def name_pool(site: Site, pool: str) -> str:
    """The work pool that serves a pool of a Slurm site."""
    return f"{site.name}-{pool}"


def draft_pool(site: Site, pool: str, root: Path) -> WorkPoolCreate:
    """The request that creates that work pool."""
    template = pool_template(site.pools[pool], find_folder(site, root))
    return WorkPoolCreate(name=name_pool(site, pool), type="slurm", base_job_template=template)


def make_job_variables(allocation: Allocation, folder: str) -> dict[str, Any]:
    """What a shard's job requests from Slurm, and its environment, for a deployment or a run."""
    sites = variables.SITES.read()
    environment = {"DEADHEAT_STATE": folder} | ({"DEADHEAT_SITES": sites} if sites else {})
    return {**allocation.model_dump(mode="json"), "folder": folder, "env": environment}
