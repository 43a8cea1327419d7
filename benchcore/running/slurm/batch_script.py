"""The batch script of a Slurm job, from its allocation and command. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchcore.errors import UserError
from benchcore.running.slurm.allocation import Allocation

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_COMMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,199}")
# Slurm expands '%' in the log's path, and directives know no quotes.
_FOLDER = re.compile(r"/[A-Za-z0-9_./@+-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """A job: its name, allocation, command, and the folder that its nodes share with the submitter.

    Raises UserError for a name, comment or folder that can't be written into a script unquoted.
    """

    name: str
    allocation: Allocation
    folder: str
    command: tuple[str, ...]
    comment: str | None = None
    """Shown by squeue and sacct: the page of its flow run."""

    @property
    def log_folder(self) -> str:
        """The folder of job logs: one file per job id."""
        return f"{self.folder}/slurm-jobs"

    def __post_init__(self) -> None:
        if not _JOB_NAME.fullmatch(self.name):
            raise UserError(
                f"wanted a job's name of at most 80 letters, digits, '_' and '-', got "
                f"{self.name[:100]!r}; choose another name"
            )
        if self.comment is not None and not _COMMENT.fullmatch(self.comment):
            raise UserError(
                f"wanted a comment of at most 200 letters, digits and '_./:-', got "
                f"{self.comment[:220]!r}; leave it out"
            )
        if not _FOLDER.fullmatch(self.folder):
            raise UserError(
                f"wanted an absolute folder of at most 200 letters, digits and '_./@+-', got "
                f"{self.folder[:220]!r}; choose another state folder"
            )


def shard_command() -> tuple[str, ...]:
    """The command that runs a flow run in its allocation: this Python, at the same path there."""
    return (sys.executable, "-m", "prefect.engine")


def write_batch_script(job: BatchJob) -> str:
    """The script's text for sbatch. Environment variables are passed to sbatch separately."""
    directives = "".join(f"#SBATCH {option}\n" for option in list_options(job))
    modules = job.allocation.modules
    return (
        # Only a login shell knows the command `module`.
        f"#!/bin/bash{' -l' if modules else ''}\n"
        f"{directives}"
        "set -e\n"
        "# A node that does not share this folder stops here.\n"
        f"cd -- {shlex.quote(job.folder)}\n"
        # CUDA's own order is by speed; Slurm and NVML count by address.
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID\n"
        + "".join(f"module load {shlex.quote(module)}\n" for module in modules)
        + f"exec {shlex.join(job.command)}\n"
    )


def write_local_script(folder: str, command: Sequence[str]) -> str:
    """The script for this machine, without Slurm."""
    return f"#!/bin/bash\nset -e\ncd -- {shlex.quote(folder)}\nexec {shlex.join(command)}\n"


def list_options(job: BatchJob) -> list[str]:
    """The sbatch options of a job and its log."""
    allocation = job.allocation
    gpus = (
        f"gpu:{allocation.gpu_type}:{allocation.gpus}"
        if allocation.gpu_type
        else f"gpu:{allocation.gpus}"
    )
    options = {
        "job-name": job.name,
        "comment": job.comment,
        "output": f"{job.log_folder}/%j.log",
        "export": "ALL",
        "partition": allocation.partition,
        "nodes": allocation.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": allocation.cpus,
        "time": allocation.minutes,
        "gres": gpus if allocation.gpus else None,
        "mem": f"{allocation.memory_mb}M" if allocation.memory_mb else None,
        "constraint": allocation.constraint,
        "exclude": ",".join(allocation.exclude) or None,
        "qos": allocation.qos,
        "account": allocation.account,
        "container-image": allocation.container_image,
        "container-mounts": f"{job.folder}:{job.folder}" if allocation.container_image else None,
    }
    flags = ["no-requeue"] + (["exclusive"] if allocation.exclusive else [])
    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    return [f"--{option}" for option in (*flags, *given)]
