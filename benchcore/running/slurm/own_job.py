"""The Slurm job that this process runs in."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from benchcore.protocol import SlurmJob
from benchcore.running.slurm.slots import list_gpus

_SECONDS = 30
_FIELDS = "%V|%S|%e|%h"
"""Submit time, start time, end time, and whether it shares its nodes."""


@dataclass(frozen=True, kw_only=True)
class OwnJob:
    """This job: the record for results, when Slurm will end it (seconds since the epoch; None if
    unknown), and its GPUs as CUDA names them."""

    record: SlurmJob
    ends_at: float | None
    gpus: tuple[str, ...] = ()

    def in_slot(self, environ: Mapping[str, str]) -> SlurmJob:
        """The record for a result that was measured in a slot: only that slot's GPU. Slurm's index
        of a GPU is at the same position as CUDA's."""
        seen = list_gpus(environ)
        if len(self.gpus) != len(self.record.gpus) or not set(seen) < set(self.gpus):
            return self.record
        kept = tuple(self.record.gpus[self.gpus.index(gpu)] for gpu in seen)
        return dataclasses.replace(self.record, gpus=kept)


def find_own_job() -> OwnJob | None:
    """The job around this process, or None; queries squeue once."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    return read_own_job(os.environ, _query_squeue(os.environ["SLURM_JOB_ID"]))


def _query_squeue(job_id: str) -> str:
    """The job's line; empty without an answer, as a shard can be measured without it."""
    command = ["squeue", "--noheader", f"--jobs={job_id}", f"--format={_FIELDS}"]
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def read_own_job(environ: Mapping[str, str], line: str) -> OwnJob:
    """A job from its environment variables and squeue's line."""
    fields = line.strip().split("|")
    submitted, began, ends, sharing = fields if len(fields) == 4 else [""] * 4
    waited = None
    if submitted.isdigit() and began.isdigit():
        waited = max(0.0, float(began) - float(submitted))
    ends = ends if ends.isdigit() else environ.get("SLURM_JOB_END_TIME", "")
    gpus = environ.get("SLURM_JOB_GPUS") or environ.get("SLURM_STEP_GPUS") or ""
    return OwnJob(
        record=SlurmJob(
            job_id=environ["SLURM_JOB_ID"],
            node=environ.get("SLURMD_NODENAME"),
            partition=environ.get("SLURM_JOB_PARTITION"),
            gpus=tuple(gpus.split(",")) if gpus else (),
            queue_s=waited,
            exclusive=sharing in ("NO", "EXCLUSIVE") if sharing else None,
            flow_run=environ.get("PREFECT__FLOW_RUN_ID"),
        ),
        ends_at=float(ends) if ends.isdigit() else None,
        gpus=list_gpus(environ),
    )
