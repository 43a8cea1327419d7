"""How Prefect sees the steps that run where duels are measured: in this process, or in a shard's
job. Imports nothing that a job does without."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as RunState
from prefect.client.schemas.objects import TaskRun

from benchcore import campaign as steps
from benchcore import placement, proofs
from benchcore.errors import EnvironmentBuildError
from benchcore.placement import Shard, ShardReport
from benchcore.progress import ProgressLog
from benchcore.shard import ConductorFailedError, OutOfTimeError
from benchcore.slurm.lanes import settle_in_lane
from benchcore.slurm.own_job import OwnJob, find_own_job
from benchcore.state import State, open_state
from tasks.logs import attach_logs


async def is_infrastructure(_task: Task[..., Any], _run: TaskRun, state: RunState[Any]) -> bool:
    """Only what failed around a measurement is tried again; a result never is."""
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, ConductorFailedError | EnvironmentBuildError)


@task(
    task_run_name="measure-{title}",
    cache_policy=NO_CACHE,
    tags={"measure"},
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
) -> str:
    """Measure one duel; the path of its document. `log` is a file for its progress, where that is
    not the campaign's own, and `job` the Slurm job around it."""
    settle_in_lane()
    state = open_state(Path(root))
    plan = steps.load_campaign(state, campaign)
    path = steps.measure_duel(
        plan,
        steps.find_duel(plan, duel_run),
        state,
        ProgressLog(Path(log)) if log else None,
        slurm=job.seen_from(os.environ) if job else None,
        ends_at=placement.stop_at(job.ends_at) if job else None,
    )
    attach_logs(state.campaigns / campaign / "duels" / duel_run, title, f"logs-{duel_run}")
    return str(path)


@task(task_run_name="prove-{workload}-{precision}", cache_policy=NO_CACHE, tags={"measure"})
def prove_workload(workload: str, precision: str, *, campaign: str, root: str) -> None:
    """Prove that the campaign's environments compute the same, unless that was done before."""
    state = open_state(Path(root))
    log = steps.progress_log(state, campaign)
    for wanted in proofs.of_campaign(steps.load_campaign(state, campaign), state):
        if (wanted.workload, wanted.precision) == (workload, precision):
            proofs.prove(
                wanted, state, lambda text: log.append(event="proof", text=text), anew=False
            )


@task(task_run_name="prove", cache_policy=NO_CACHE, tags={"measure"})
def prove_shard(shard: Shard, *, root: str, job: OwnJob | None) -> None:
    """Prove what a shard's duels rest on, on its own device; documents only, no database. Ended
    before the job is."""
    state = open_state(Path(root))
    plan = steps.load_campaign(state, shard.campaign)
    ends_at = placement.stop_at(job.ends_at) if job else None
    proofs.prove_duels(plan, shard.duel_runs, state, ends_at)


def open_shard(campaign: str, shard: str, token: str, root: str) -> Shard:
    """The shard that this job was sent for, if it sees the folder of whoever sent it."""
    return placement.open_shard(State(Path(root)), campaign, shard, token)


def list_shard(shard: Shard, root: str) -> dict[str, str]:
    """A shard's duels in order: what people call each, by its id."""
    plan = steps.load_campaign(State(Path(root)), shard.campaign)
    return {each: steps.find_duel(plan, each).title for each in shard.duel_runs}


def shard_log(shard: Shard, root: str) -> str:
    """Where a shard tells what it is doing."""
    return str(placement.shard_log(State(Path(root)), shard))


def find_job(shard: Shard) -> OwnJob | None:
    """The Slurm job around this shard, told to whoever looks at its flow run."""
    job = find_own_job()
    if job is not None:
        create_table_artifact(
            key=f"slurm-job-{job.record.job_id}",
            table=[dataclasses.asdict(job.record)],
            description=f"The Slurm job that measured {shard.title} of {shard.campaign}",
        )
    return job


def has_time(shard: Shard, duel_run: str, job: OwnJob | None) -> bool:
    """Whether a duel is expected to end before the job around it."""
    ends_at = job.ends_at if job else None
    return placement.has_time(shard, duel_run, now=time.time(), ends_at=ends_at)


def ran_out_of_time(ended: RunState[Any]) -> bool:
    """Whether a duel was stopped since its job was about to end."""
    return isinstance(ended.result(raise_on_failure=False), OutOfTimeError)


def report_shard(shard: Shard, root: str, lost: dict[str, str], rest: list[str]) -> None:
    """Tell whoever waits why duels left no result, and which are handed back."""
    placement.report_shard(State(Path(root)), shard, ShardReport(lost=lost, rest=rest))
