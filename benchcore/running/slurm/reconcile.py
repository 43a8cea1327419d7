"""Decides the next action for a flow run from the states of its Slurm jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from benchcore.running.slurm.job_states import Fate, describe_job, judge_state, never_starts
from benchcore.running.slurm.scheduler import Job

MAX_ATTEMPTS = 3
"""The most jobs of one flow run, if the cluster loses them."""
GRACE_S = 60.0
"""How long a job may take to appear in squeue or sacct."""

Phase = Literal["pending", "running", "cancelling", "crashed"]


class Action(Enum):
    """The worker's next action for a flow run."""

    WAIT = "wait"
    ATTACH = "attach"
    """Write the job's id to the flow run: a worker died before it did."""
    SCANCEL = "scancel"
    SUBMIT_AGAIN = "submit again"
    RUNS_ON = "runs on"
    """Set the flow run to running again: the engine of a lost job had reported a crash."""
    CRASHED = "crashed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The state of a flow run in Prefect. `cancel_requested`: it was cancelled before it crashed;
    `reported`: its crash was reported from Slurm's state, and is final."""

    phase: Phase
    since_s: float
    job_id: str | None
    cancel_requested: bool = False
    reported: bool = False


@dataclass(frozen=True)
class Decision:
    """An action, its message for people, and the job it concerns."""

    action: Action
    message: str = ""
    job_id: str | None = None


def decide(run: RunView, jobs: Sequence[Job]) -> Decision:
    """The next action for a flow run with these jobs, oldest first. It has no memory: after the
    action it returns WAIT or the same action."""
    if not jobs:
        return _decide_without_job(run)
    job = jobs[-1]
    fate, text = judge_state(job.state, job.reason), describe_job(job.job_id, job.state, job.reason)
    cancelling = run.phase == "cancelling" or run.cancel_requested
    if fate in (Fate.WAITS, Fate.RUNS):
        return _decide_alive(run, job, text)
    if cancelling:
        return Decision(Action.CANCELLED, text, job.job_id)
    if fate is Fate.LOST:
        return _decide_lost(run, jobs, text)
    if run.reported:
        return Decision(Action.WAIT)
    if fate is Fate.ENDED and run.phase != "crashed":
        text += ", but its flow run never reported a result"
    return Decision(Action.CRASHED, text, job.job_id)


def _decide_without_job(run: RunView) -> Decision:
    if run.phase == "crashed" or (run.phase != "cancelling" and run.since_s < GRACE_S):
        return Decision(Action.WAIT)
    if run.phase == "cancelling":
        return Decision(Action.CANCELLED, "Cancelled before it was submitted to Slurm")
    if run.job_id:
        return Decision(Action.CRASHED, f"Slurm no longer knows job {run.job_id}")
    return Decision(Action.SUBMIT_AGAIN, "Its worker ended before submitting it")


def _decide_alive(run: RunView, job: Job, text: str) -> Decision:
    if run.phase == "cancelling":
        return Decision(Action.SCANCEL, text, job.job_id)
    if run.phase == "crashed":
        runs_on = job.state == "RUNNING" and run.since_s >= GRACE_S
        given_up = run.reported or run.cancel_requested or not runs_on
        return Decision(Action.WAIT) if given_up else Decision(Action.RUNS_ON, text, job.job_id)
    if never_starts(job.state, job.reason):
        return Decision(Action.CRASHED, f"{text}: it would never start", job.job_id)
    if run.job_id != job.job_id:
        return Decision(Action.ATTACH, text, job.job_id)
    return Decision(Action.WAIT)


def _decide_lost(run: RunView, jobs: Sequence[Job], text: str) -> Decision:
    if run.phase == "pending" and run.since_s < GRACE_S:
        return Decision(Action.WAIT)  # the next attempt may be being submitted now
    lost = sum(judge_state(job.state, job.reason) is Fate.LOST for job in jobs)
    if lost < MAX_ATTEMPTS:
        again = f"{text}; attempt {lost + 1} of {MAX_ATTEMPTS}"
        return Decision(Action.SUBMIT_AGAIN, again, jobs[-1].job_id)
    if run.reported:
        return Decision(Action.WAIT)
    return Decision(Action.CRASHED, f"{text}; {MAX_ATTEMPTS} attempts were lost", jobs[-1].job_id)
