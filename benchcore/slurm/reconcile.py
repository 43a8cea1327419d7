"""What to do with a flow run, given what Slurm says of its jobs: one pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from benchcore.slurm.job_states import Fate, describe_job, judge_state, never_starts
from benchcore.slurm.scheduler import Job

MAX_ATTEMPTS = 3
"""Jobs of one flow run, when the cluster keeps losing them."""
GRACE_S = 60.0
"""How long a job may take to show up in squeue or sacct."""

Phase = Literal["pending", "running", "cancelling", "crashed"]


class Move(Enum):
    """What is to be done."""

    WAIT = "wait"
    ATTACH = "attach"
    """Write the job's id to the flow run: the worker died before it could."""
    SCANCEL = "scancel"
    SUBMIT_AGAIN = "submit again"
    RUNS_ON = "runs on"
    """Call it running again: the engine of a job that Slurm had given up said 'crashed'."""
    CRASHED = "crashed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What Prefect says of a flow run. `asked_to_cancel`: it was cancelled before it crashed;
    `told`: that it crashed was said in Slurm's words, and is its end."""

    phase: Phase
    since_s: float
    job_id: str | None
    asked_to_cancel: bool = False
    told: bool = False


@dataclass(frozen=True)
class Decision:
    """A move, the words for people, and the job it concerns."""

    move: Move
    words: str = ""
    job_id: str | None = None


def decide(run: RunView, jobs: Sequence[Job]) -> Decision:
    """The next move for a flow run whose jobs are `jobs`, oldest first. Asked again after it was
    done, it answers WAIT or the same: nothing is remembered here."""
    if not jobs:
        return _decide_without_job(run)
    job = jobs[-1]
    fate, words = judge_state(job.state), describe_job(job.job_id, job.state, job.reason)
    cancelling = run.phase == "cancelling" or run.asked_to_cancel
    if fate in (Fate.WAITS, Fate.RUNS):
        return _decide_alive(run, job, words)
    if cancelling:
        return Decision(Move.CANCELLED, words, job.job_id)
    if fate is Fate.LOST:
        return _decide_lost(run, jobs, words)
    if run.told:
        return Decision(Move.WAIT)
    if fate is Fate.ENDED and run.phase != "crashed":
        words += ", but its flow run never said how it went"
    return Decision(Move.CRASHED, words, job.job_id)


def _decide_without_job(run: RunView) -> Decision:
    if run.phase == "crashed" or (run.phase != "cancelling" and run.since_s < GRACE_S):
        return Decision(Move.WAIT)
    if run.phase == "cancelling":
        return Decision(Move.CANCELLED, "Cancelled before it became a Slurm job")
    if run.job_id:
        return Decision(Move.CRASHED, f"Slurm knows no job {run.job_id} any more")
    return Decision(Move.SUBMIT_AGAIN, "Its worker ended before it could submit")


def _decide_alive(run: RunView, job: Job, words: str) -> Decision:
    if run.phase == "cancelling":
        return Decision(Move.SCANCEL, words, job.job_id)
    if run.phase == "crashed":
        runs_on = job.state == "RUNNING" and run.since_s >= GRACE_S
        given_up = run.told or run.asked_to_cancel or not runs_on
        return Decision(Move.WAIT) if given_up else Decision(Move.RUNS_ON, words, job.job_id)
    if never_starts(job.state, job.reason):
        return Decision(Move.CRASHED, f"{words}: it would never start", job.job_id)
    if run.job_id != job.job_id:
        return Decision(Move.ATTACH, words, job.job_id)
    return Decision(Move.WAIT)


def _decide_lost(run: RunView, jobs: Sequence[Job], words: str) -> Decision:
    if run.phase == "pending" and run.since_s < GRACE_S:
        return Decision(Move.WAIT)  # perhaps the next attempt is being submitted right now
    lost = sum(judge_state(job.state) is Fate.LOST for job in jobs)
    if lost < MAX_ATTEMPTS:
        again = f"{words}; attempt {lost + 1} of {MAX_ATTEMPTS}"
        return Decision(Move.SUBMIT_AGAIN, again, jobs[-1].job_id)
    if run.told:
        return Decision(Move.WAIT)
    return Decision(Move.CRASHED, f"{words}; {MAX_ATTEMPTS} attempts were lost", jobs[-1].job_id)
