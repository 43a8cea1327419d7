"""The only module that runs Slurm's commands, without a shell; parses their output."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_SECONDS = 30
_NAMES_AT_ONCE = 1000
"""Of a command: Linux limits an argument to 128 kB, and a name of ours has 45 characters."""
_DIRECTIVE = "#SBATCH "
_REFUSED = ("SBATCH_", "SLURM_", "LD_", "PYTHON")
_CODE = frozenset({"PATH", "BASH_ENV", "ENV"})
"""Like LD_* and PYTHON*, these decide which code runs."""
OF_SERVICES = "DEADHEAT_SERVICE"
"""Marks the processes of a service of `deadheat up`. A job has no such mark: it outlives the worker
that submits it."""
_UNREACHABLE = re.compile(r"unable to contact|timed out|connection refused|slurmdbd", re.IGNORECASE)

_NO_JOB = re.compile("invalid job id specified", re.IGNORECASE)
"""scancel's answer if no job that waits or runs has both the id and the name."""
_NO_ACCOUNTING = re.compile("accounting storage is disabled", re.IGNORECASE)


class SlurmRefusedError(Exception):
    """Slurm refused a command; the message is Slurm's."""


class SlurmUnreachableError(Exception):
    """Slurm did not answer, so the state of its jobs is unknown."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as squeue or sacct reports it. `reason` is why it waits or how it ended."""

    job_id: str
    name: str
    state: str
    reason: str


def submit(script: str, environment: Mapping[str, str]) -> str:
    """Submit a batch script with our environment, updated with `environment`; returns the job's id.
    The script's options are given to sbatch as well: otherwise SBATCH_* variables of our shell,
    such as SBATCH_PARTITION, would override them.

    Raises SlurmRefusedError with sbatch's message, and SlurmUnreachableError; in that case the job
    may have been accepted.
    """
    own = {key: value for key, value in os.environ.items() if key != OF_SERVICES}
    lines = (line.partition(_DIRECTIVE) for line in script.splitlines())
    options = [option for before, _, option in lines if option and not before]
    command = ["sbatch", "--parsable", *options]
    printed = _call(command, script, {**own, **check_environ(environment)})
    return printed.split(";", 1)[0].strip()


def cancel(job_id: str, name: str) -> None:
    """Cancel a job with this name in any state; no effect on one that has ended, nor on another job
    that has got its id, as after Slurm was set up anew."""
    try:
        _call(["scancel", f"--name={name}", _check_id(job_id)])
    except SlurmRefusedError as error:
        if not _NO_JOB.search(str(error)):
            raise


def list_jobs(names: Iterable[str]) -> dict[str, list[Job]]:
    """Every job with one of the names, by name, oldest first: one squeue and one sacct for
    _NAMES_AT_ONCE of them.

    squeue is up to date but forgets ended jobs; sacct lags but remembers them. A cluster without
    accounting has only what squeue remembers.
    """
    wanted = sorted(set(names))
    jobs: dict[str, Job] = {}
    for start in range(0, len(wanted), _NAMES_AT_ONCE):
        part = wanted[start : start + _NAMES_AT_ONCE]
        queued = _list_queued(part)
        try:
            ended = _list_accounted(part)
        except SlurmRefusedError as error:
            if not _NO_ACCOUNTING.search(str(error)):
                raise
            ended = []
        jobs |= {job.job_id: job for job in (*ended, *queued)}
    found: dict[str, list[Job]] = {name: [] for name in wanted}
    for job in sorted(jobs.values(), key=lambda job: int(job.job_id)):
        if job.name in found:
            found[job.name].append(job)
    return {name: of_name for name, of_name in found.items() if of_name}


def list_queued(name: str) -> list[Job]:
    """The jobs with this name that squeue knows, oldest first: all that wait or run. sacct, which
    may be slow or away, is not needed."""
    jobs = (job for job in _list_queued([name]) if job.name == name)
    return sorted(jobs, key=lambda job: int(job.job_id))


def _list_queued(names: Sequence[str]) -> list[Job]:
    chosen = f"--name={','.join(names)}"
    squeue = ["squeue", "--noheader", "--states=all", chosen, "--format=%i|%T|%r|%j"]
    return _read_jobs(_call(squeue))


def _list_accounted(names: Sequence[str]) -> list[Job]:
    chosen = f"--name={','.join(names)}"
    fields = "--format=jobid,state,reason,jobname%120"
    sacct = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", chosen]
    return _read_jobs(_call([*sacct, "--starttime=now-30days", fields]))


def list_nodes(partition: str) -> list[str]:
    """The nodes of a partition that could run a job, now or later, sorted by name."""
    output = _call(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N %t"])
    rows = [line.split() for line in output.splitlines()]
    # A suffix qualifies the state; '*' is a node that does not answer.
    usable = re.compile(r"(idle|mix|alloc|comp|resv|plnd)[^*]?")
    return sorted({name for name, state in rows if usable.fullmatch(state)})


def check_environ(environment: Mapping[str, str]) -> dict[str, str]:
    """A job's variables, checked. Raises SlurmRefusedError for a bad name, for one of Slurm's,
    which would override the script's options, and for one that decides which code runs."""
    for name, value in environment.items():
        refused = name in _CODE or name.startswith(_REFUSED)
        if refused or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise SlurmRefusedError(
                "wanted names of variables that neither are Slurm's own nor choose the code that "
                f"runs (PATH, LD_*, PYTHON*), got {name[:100]!r}; remove it from 'env'"
            )
    return dict(environment)


def _read_jobs(text: str) -> list[Job]:
    rows = [line.split("|", 3) for line in text.splitlines()]
    return [
        Job(job_id=row[0], state=row[1], reason=row[2], name=row[3])
        for row in rows
        if len(row) == 4 and row[0].isdigit()
    ]


def _check_id(job_id: str) -> str:
    if not re.fullmatch(r"[0-9]{1,12}", job_id):
        raise SlurmRefusedError(f"wanted the id of a job, got {job_id[:100]!r}")
    return job_id


def _call(
    command: list[str], text: str | None = None, environment: Mapping[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SlurmUnreachableError(f"{command[0]} did not end within {_SECONDS} s") from None
    except FileNotFoundError:
        raise SlurmUnreachableError(f"there is no {command[0]} on PATH") from None
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip()[-1000:] or f"{command[0]} ended with {done.returncode}"
    raise (SlurmUnreachableError if _UNREACHABLE.search(message) else SlurmRefusedError)(message)
