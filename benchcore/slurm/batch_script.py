"""The batch script of a job: one pure function from what is asked for to text."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass

from benchcore.errors import UserError
from benchcore.slurm.allocation import Allocation

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_COMMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,199}")
# Slurm expands '%' in the log's path, and directives know no quotes.
_FOLDER = re.compile(r"/[A-Za-z0-9_./@+-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """A job: its name, what it asks for, the folder that its nodes share with us, and what it runs.

    Raises UserError for a name or a folder that could not be written into a script as it is.
    """

    name: str
    allocation: Allocation
    folder: str
    command: tuple[str, ...]
    comment: str | None = None
    """What squeue and sacct show beside it: the page of its flow run."""

    @property
    def log_folder(self) -> str:
        """Where the job's output goes: a file named after its id."""
        return f"{self.folder}/slurm-jobs"

    def __post_init__(self) -> None:
        if not _JOB_NAME.fullmatch(self.name):
            raise UserError(
                f"wanted a job's name of at most 80 letters, digits, '_' and '-', got "
                f"{self.name[:100]!r}; choose another"
            )
        if self.comment is not None and not _COMMENT.fullmatch(self.comment):
            raise UserError(
                f"wanted a comment of at most 200 letters, digits and '_./:-', got "
                f"{self.comment[:220]!r}; leave it out"
            )
        if not _FOLDER.fullmatch(self.folder):
            raise UserError(
                f"wanted an absolute folder of at most 200 letters, digits and '_./@+-', got "
                f"{self.folder[:220]!r}; put the state folder elsewhere"
            )


def shard_command() -> tuple[str, ...]:
    """What runs a flow run inside its allocation: this Python, found under the same path there."""
    return (sys.executable, "-m", "prefect.engine")


def write_batch_script(job: BatchJob) -> str:
    """The text that sbatch is given. It holds no environment: that goes to sbatch beside it."""
    directives = "".join(f"#SBATCH {option}\n" for option in list_options(job))
    modules = job.allocation.modules
    return (
        # Only a login shell knows the command `module`.
        f"#!/bin/bash{' -l' if modules else ''}\n"
        f"{directives}"
        "set -e\n"
        "# A node that does not share this folder ends here.\n"
        f"cd -- {shlex.quote(job.folder)}\n"
        + "".join(f"module load {shlex.quote(module)}\n" for module in modules)
        + f"exec {shlex.join(job.command)}\n"
    )


def list_options(job: BatchJob) -> list[str]:
    """Of sbatch, for a job and where its output goes."""
    asked = job.allocation
    gpus = f"gpu:{asked.gpu_type}:{asked.gpus}" if asked.gpu_type else f"gpu:{asked.gpus}"
    options = {
        "job-name": job.name,
        "comment": job.comment,
        "output": f"{job.log_folder}/%j.log",
        "export": "ALL",
        "partition": asked.partition,
        "nodes": asked.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": asked.cpus,
        "time": asked.minutes,
        "gres": gpus if asked.gpus else None,
        "mem": f"{asked.memory_mb}M" if asked.memory_mb else None,
        "constraint": asked.constraint,
        "exclude": ",".join(asked.exclude) or None,
        "qos": asked.qos,
        "account": asked.account,
        "container-image": asked.container_image,
        "container-mounts": f"{job.folder}:{job.folder}" if asked.container_image else None,
    }
    flags = ["no-requeue"] + (["exclusive"] if asked.exclusive else [])
    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    return [f"--{option}" for option in (*flags, *given)]
