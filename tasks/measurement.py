"""Tasks that measure and prove, in this process or in a shard's job. Imports only what a job
needs."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State as RunState
from prefect.client.schemas.objects import TaskRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Failed

from benchcore.errors import EnvironmentBuildError
from benchcore.running import duels, equivalence, shards
from benchcore.running.duel_process import (
    ConductorFailedError,
    DeviceBusyError,
    OutOfTimeError,
)
from benchcore.running.duels import find_duel
from benchcore.running.plans import load_campaign, progress_log
from benchcore.running.progress import ProgressLog
from benchcore.running.shards import Shard, ShardReport
from benchcore.running.slurm.own_job import OwnJob, find_own_job
from benchcore.running.slurm.slots import pin_to_slot
from benchcore.state import State, open_state
from tasks.artifacts import WAITED, attach_logs, name_key

MEASURE_TAG = "measure"
MEASURE_LIMIT = f"tag:{MEASURE_TAG}"
"""Prefect's concurrency limit of tasks with the tag `measure`: one at a time on a server."""
Ended = tuple[str, RunState[str]]
"""The id of a duel run, and the final state of its task run."""


def find_measure_tags() -> set[str]:
    """The tag `measure` if the server has the limit behind it. A temporary server has none, but a
    task with a tag requests limits. At that time its SQLite stores the end of the task before, so
    it often refuses, and Prefect's client waits 2 s before its next request."""
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(MEASURE_LIMIT)
        except ObjectNotFound:
            return set()
    return {MEASURE_TAG}


async def is_infrastructure(_task: Task[..., Any], _run: TaskRun, state: RunState[Any]) -> bool:
    """Whether to retry: only a failure around a measurement is retried, a result never is."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, ConductorFailedError | EnvironmentBuildError)


@task(
    task_run_name="measure-{title}",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure,
)
def measure_duel(
    title: str,
    duel_run: str,
    *,
    campaign: str,
    root: str,
    log: str | None = None,
    job: OwnJob | None = None,
) -> RunState[str]:
    """Measure one duel; the state holds the path of its document. `log` is the file of its
    progress (None: the campaign's), `job` the Slurm job around it."""
    pin_to_slot()
    state = open_state(Path(root))
    plan = load_campaign(state, campaign)
    path = duels.measure_duel(
        plan,
        find_duel(plan, duel_run),
        state,
        ProgressLog(Path(log)) if log else None,
        slurm=job.in_slot(os.environ) if job else None,
        ends_at=shards.stop_at(job.ends_at) if job else None,
    )
    attach_logs(state.campaigns / campaign / "duels" / duel_run, title, campaign)
    return Completed(message=f"{title}: measured", data=str(path))


measure_in_job = measure_duel.with_options(tags={"measure-in-job"})
"""Allocations measure side by side: the limit behind the tag `measure` is for one machine."""


@task(task_run_name="prove-{workload}-{precision}", cache_policy=NO_CACHE)
def prove_workload(workload: str, precision: str, *, campaign: str, root: str) -> RunState[None]:
    """Prove that the campaign's environments compute the same, unless a proof exists."""
    state = open_state(Path(root))
    log = progress_log(state, campaign)
    plan = load_campaign(state, campaign)
    for wanted in equivalence.list_campaign_proofs(plan, state, (workload, precision)):
        equivalence.prove(
            wanted, state, lambda text: log.append(event="proof", text=text), repeat=False
        )
    return Completed(message=f"{workload} {precision}: proofs are done")


@task(task_run_name="prove", cache_policy=NO_CACHE, tags={"measure-in-job"})
def prove_shard(shard: Shard, *, root: str, job: OwnJob | None) -> RunState[list[str]]:
    """Prove the cases of a shard's duels on its own device, until the job is about to end. Writes
    documents only, no database. The state holds the proofs that were completed."""
    state = open_state(Path(root))
    plan = load_campaign(state, shard.campaign)
    ends_at = shards.stop_at(job.ends_at) if job else None
    proofs, failures = equivalence.prove_duels(plan, shard.duel_runs, state, ends_at)
    if failures:
        return Failed(message="\n".join(failures), data=proofs)
    return Completed(message=f"{len(proofs)} proofs were made", data=proofs)


def list_proofs(ended: RunState[Any]) -> list[str]:
    """The proofs that `prove_shard` completed."""
    proofs = ended.result(raise_on_failure=False, **WAITED)
    return proofs if isinstance(proofs, list) else []


def list_returnable(shard: Shard, proofs: list[str], root: str) -> set[str]:
    """The duels that a shard may return although no duel ran before them: their proofs took its
    time."""
    return shards.list_returnable(State(Path(root)), shard, proofs)


def open_shard(campaign: str, shard: str, token: str, root: str) -> Shard:
    """The shard of this job. Raises if this node does not share the submitter's folder."""
    return shards.load_shard(State(Path(root)), campaign, shard, token)


def list_shard(shard: Shard, root: str) -> dict[str, str]:
    """A shard's duels in order: titles by id."""
    plan = load_campaign(State(Path(root)), shard.campaign)
    return {each: find_duel(plan, each).title for each in shard.duel_runs}


def shard_log(shard: Shard, root: str) -> str:
    """The file of a shard's progress."""
    return str(shards.shard_log(State(Path(root)), shard))


def find_job(shard: Shard) -> OwnJob | None:
    """The Slurm job around this shard, if any; it becomes an artifact of the flow run."""
    job = find_own_job()
    if job is not None:
        create_table_artifact(
            key=name_key("slurm-job", shard.campaign),
            table=[dataclasses.asdict(job.record)],
            description=f"The Slurm job that measured {shard.title} of {shard.campaign}",
        )
    return job


def has_time(shard: Shard, duel_run: str, job: OwnJob | None) -> bool:
    """Whether a duel is expected to end before the job around it."""
    ends_at = job.ends_at if job else None
    return shards.has_time(shard, duel_run, now=time.time(), ends_at=ends_at)


def ran_out_of_time(ended: RunState[Any]) -> bool:
    """Whether a duel was stopped because its job was about to end."""
    return isinstance(ended.result(raise_on_failure=False, **WAITED), OutOfTimeError)


def found_busy(ended: RunState[Any]) -> bool:
    """Whether another process used a duel's device until its job was about to end."""
    return isinstance(ended.result(raise_on_failure=False, **WAITED), DeviceBusyError)


def report_shard(shard: Shard, root: str, report: ShardReport) -> None:
    """Record why duels have no result, which are returned unmeasured, and the proofs."""
    shards.report_shard(State(Path(root)), shard, report)
