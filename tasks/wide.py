"""The analysis of many series: prefect-dask, on this machine's CPUs or in jobs of a Slurm site."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchcore.cell.host import usable_cpus
from benchcore.errors import UserError
from benchcore.sites import Analysis, Site
from benchcore.slurm import scheduler
from benchcore.slurm.batch_script import BatchJob, list_options, write_batch_script
from benchcore.slurm.scheduler import SlurmRefusedError, SlurmUnreachableError
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.suspicions import History, find_one_by_one, refresh_suspicions
from benchcore.verdict.history import Found
from benchcore.verdict.series import Series

ENOUGH_TO_SHARE = 500
"""Histories; fewer are looked at before another process has started."""
_CHUNK = 50
_START_S = 300.0


def ask_histories(
    engine: Engine, site: Site, state: State, series: Sequence[Series] | None = None
) -> list[Found]:
    """Bring the kept suspicions up to date with the series; of the database if None is given. What
    each history says."""
    folder = site.state or str(state.root)
    return refresh_suspicions(engine, series, partial(find_wide, site=site, folder=folder))


def find_wide(histories: Sequence[History], site: Site, folder: str) -> list[Found]:
    """What each history says; of many, side by side. `folder` is shared with the nodes.

    Raises UserError if a Slurm site refuses its jobs, or none comes.
    """
    if len(histories) < ENOUGH_TO_SHARE:
        return find_one_by_one(histories)
    # Takes a second that few histories need not wait.
    from prefect_dask.task_runners import DaskTaskRunner

    cluster_class, options = _choose_cluster(site, folder)
    chunks = [histories[at : at + _CHUNK] for at in range(0, len(histories), _CHUNK)]
    with DaskTaskRunner(cluster_class=cluster_class, cluster_kwargs=options) as runner:
        client: Any = runner.client  # typed as if it were asynchronous
        try:
            client.wait_for_workers(1, timeout=_START_S)
        except TimeoutError as error:
            raise UserError(
                f"wanted a job of site {site.name!r} within {_START_S:.0f} s, got none; see squeue "
                "and mend the site's table [analysis], or leave it out"
            ) from error
        found = client.gather(client.map(find_one_by_one, chunks, pure=False))
    return [each for chunk in found for each in chunk]


def _choose_cluster(site: Site, folder: str) -> tuple[type, dict[str, Any]]:
    """Only who has its certificate, which is made here, can talk to it: machines have other users.
    A cluster of this machine keeps it in memory, and Slurm's jobs get it in `folder`."""
    from dask_jobqueue.slurm import SLURMCluster
    from distributed import LocalCluster, Security

    shared = {"security": Security.temporary(), "protocol": "tls://", "silence_logs": "ERROR"}
    if site.analysis is None:
        local = {"n_workers": usable_cpus(), "threads_per_worker": 1, "dashboard_address": None}
        return LocalCluster, {**shared, **local, "host": "127.0.0.1"}
    return SLURMCluster, {**shared, **_ask_slurm(site.analysis, folder)}


def _ask_slurm(asked: Analysis, folder: str) -> dict[str, Any]:
    """A job a Dask job, with the very options of any other job of ours. dask-jobqueue can't tell
    of one that is refused, so Slurm is asked before."""
    job = BatchJob(name="deadheat-analysis", allocation=asked, folder=folder, command=("true",))
    assert asked.memory_mb is not None, "TOML has no null"
    try:
        scheduler.check(write_batch_script(job))
    except (SlurmRefusedError, SlurmUnreachableError) as error:
        words = " ".join(str(error).split())
        raise UserError(
            f"wanted jobs that look at series, but Slurm says: {words}; mend the site's table "
            "[analysis], or leave it out"
        ) from error
    Path(job.log_folder).mkdir(exist_ok=True)
    return {
        "n_workers": asked.jobs * asked.cpus,
        "cores": asked.cpus,
        "processes": asked.cpus,
        "memory": f"{asked.memory_mb}MB",
        "job_directives_skip": ["#SBATCH"],
        "job_extra_directives": list_options(job),
        "job_script_prologue": [f"module load {each}" for each in asked.modules],
        "interface": asked.interface,
        "shared_temp_directory": folder,
        "scheduler_options": {"dashboard": False},
    }
