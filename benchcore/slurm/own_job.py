"""The Slurm job that this process runs in, as Slurm tells of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

_SECONDS = 30
_FIELDS = "%V|%S|%e|%h"
"""When it was submitted, when it began, when it will be ended, whether it shares its nodes."""


@dataclass(frozen=True, kw_only=True)
class OwnJob:
    """A job from within. What Slurm did not tell is None; times are seconds since the epoch."""

    job_id: str
    node: str | None
    partition: str | None
    gpus: tuple[str, ...]
    """Indices on the node, as Slurm numbers them."""
    queue_s: float | None
    ends_at: float | None
    exclusive: bool | None


def find_own_job() -> OwnJob | None:
    """The job around this process, if it runs in one; asks squeue once."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        return None
    submitted, began, ends, sharing = _ask(job_id)
    gpus = os.environ.get("SLURM_JOB_GPUS") or os.environ.get("SLURM_STEP_GPUS") or ""
    return OwnJob(
        job_id=job_id,
        node=os.environ.get("SLURMD_NODENAME"),
        partition=os.environ.get("SLURM_JOB_PARTITION"),
        gpus=tuple(gpus.split(",")) if gpus else (),
        queue_s=None if submitted is None or began is None else max(0.0, began - submitted),
        ends_at=ends,
        # OverSubscribe of a job is NO where it has its nodes for itself (`sbatch --exclusive`).
        exclusive=None if sharing is None else sharing in ("NO", "EXCLUSIVE"),
    )


def _ask(job_id: str) -> tuple[float | None, float | None, float | None, str | None]:
    command = ["squeue", "--noheader", f"--jobs={job_id}", f"--format={_FIELDS}"]
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        told = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None, None, None
    return read_own_job(told.stdout)


def read_own_job(text: str) -> tuple[float | None, float | None, float | None, str | None]:
    """Submission, begin, end and sharing from a line of squeue; None for what it does not say."""
    fields = text.strip().split("|")
    if len(fields) != 4:
        return None, None, None, None
    submitted, began, ends = (float(each) if each.isdigit() else None for each in fields[:3])
    return submitted, began, ends, fields[3]
