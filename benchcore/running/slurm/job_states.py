"""The meaning of Slurm's job states. Exit codes are ignored: they may be 0 for a lost node or a job
that ran out of time."""

from __future__ import annotations

import re
from enum import Enum


class Fate(Enum):
    """What became of a job."""

    WAITS = "waits"
    RUNS = "runs"
    ENDED = "ended"
    """With exit code 0."""
    FAILED = "failed"
    """By its own error: final, never submitted again."""
    LOST = "lost"
    """By the cluster: submitted again."""
    CANCELLED = "cancelled"


_STATES = {
    "PENDING": (Fate.WAITS, "waits in the queue"),
    "CONFIGURING": (Fate.WAITS, "waits for its nodes to boot"),
    "REQUEUED": (Fate.WAITS, "waits in the queue again"),
    "REQUEUE_HOLD": (Fate.WAITS, "was put back into the queue and is held there"),
    "REQUEUE_FED": (Fate.WAITS, "was put back into the queue of a federation"),
    "RESV_DEL_HOLD": (Fate.WAITS, "is held, as its reservation was deleted"),
    "SPECIAL_EXIT": (Fate.WAITS, "was put back into the queue and is held there"),
    "RUNNING": (Fate.RUNS, "runs"),
    "COMPLETING": (Fate.RUNS, "is ending"),
    "RESIZING": (Fate.RUNS, "changes its size"),
    "SIGNALING": (Fate.RUNS, "is being signalled"),
    "STAGE_OUT": (Fate.RUNS, "copies its files"),
    "STOPPED": (Fate.RUNS, "was stopped and keeps its nodes"),
    "SUSPENDED": (Fate.RUNS, "is suspended"),
    "COMPLETED": (Fate.ENDED, "ended by itself"),
    "FAILED": (Fate.FAILED, "ended with an error"),
    "OUT_OF_MEMORY": (Fate.FAILED, "used more memory than it requested"),
    "TIMEOUT": (Fate.FAILED, "reached its time limit"),
    "DEADLINE": (Fate.FAILED, "did not end before its deadline"),
    "BOOT_FAIL": (Fate.LOST, "lost its node, which did not boot"),
    "LAUNCH_FAILED": (Fate.LOST, "could not be launched on its node"),
    "NODE_FAIL": (Fate.LOST, "lost its node"),
    "PREEMPTED": (Fate.LOST, "was preempted by another job"),
    "REVOKED": (Fate.LOST, "was taken away by another cluster of the federation"),
    "CANCELLED": (Fate.CANCELLED, "was cancelled"),
}
_NEVER_STARTS = re.compile(
    "BadConstraints|DependencyNeverSatisfied|InvalidAccount|InvalidQOS|AccountNotAllowed"
    "|PartitionConfig|PartitionNodeLimit|PartitionTimeLimit"
    r"|(Assoc|QOS)Max\w+PerJob(Limit)?|QOSNotAllowed|QOSMinCpuNotSatisfied|QOSMinGRES"
)
"""Reasons why a waiting job will never start. A limit of all jobs of a user or account is none."""


def judge_state(state: str, reason: str = "") -> Fate:
    """The meaning of a state such as 'NODE_FAIL' or 'CANCELLED by 1000'. An unknown state counts as
    running: nothing is given up, and nothing is started twice."""
    return _look_up(state, reason)[0]


def describe_job(job_id: str, state: str, reason: str = "") -> str:
    """'Slurm job 7 lost its node (NODE_FAIL, NodeDown)'."""
    text = _look_up(state, reason)[1]
    details = [_first_word(state)] + ([reason] if reason not in ("", "None") else [])
    return f"Slurm job {job_id} {text} ({', '.join(details)})"


def never_starts(state: str, reason: str) -> bool:
    """Whether a waiting job will never start."""
    return judge_state(state) is Fate.WAITS and bool(_NEVER_STARTS.fullmatch(reason))


def _look_up(state: str, reason: str) -> tuple[Fate, str]:
    """Slurm's reason for a job that was ended by a signal of its own is 'JobLaunchFailure'."""
    name = _first_word(state)
    if name == "FAILED" and reason == "JobLaunchFailure":
        return Fate.FAILED, "was ended by a signal"
    return _STATES.get(name, (Fate.RUNS, "is in an unknown state"))


def _first_word(state: str) -> str:
    return re.split(r"[ +]", state.strip(), maxsplit=1)[0]
