"""What this machine has: probed first, then compared with what a profile and a site require."""

from __future__ import annotations

import http.client
import netrc
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchcore.cell.measure import gpu
from benchcore.environments.interpreters import find_interpreters, read_output
from benchcore.environments.uv_command import run_uv
from benchcore.errors import UserError

ReadinessStatus = Literal["ok", "missing", "absent_but_optional"]
_COMMAND_TIMEOUT_S = 10
_LEAST_FREE_BYTES = 15 * 10**9
_WANDB_HOST = "api.wandb.ai"

_REMEDIES = {
    "python": "put CPython 3.11 or later on PATH, or run `uv python install`",
    "uv": "install deadheat again, which includes uv",
    "compiler": "install a C++ compiler (g++), or set CXX; torch.compile on the CPU needs one",
    "gpu": "run on a machine with an NVIDIA GPU and its driver, or choose a CPU profile",
    "slurm": "put sbatch and sinfo on PATH and start the controller, or use the site local",
    "database": "make the state folder writable, or correct DEADHEAT_DATABASE_URL",
    "prefect_api": "set PREFECT_API_URL to a server that the compute nodes reach (`prefect server "
    "start`); on site local, unset it",
    "wandb": "run `wandb login` or set WANDB_API_KEY; until then runs are stored offline",
    "disk": "free some space, or choose a state folder on another disk with --state",
}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a profile and a site require; the rest is optional."""

    python: bool = True
    uv: bool = True
    compiler: bool = False
    gpu: bool = False
    slurm: bool = False
    database: bool = True
    prefect_api: bool = False
    wandb: bool = False
    disk: bool = True


@dataclass(frozen=True)
class Observation:
    """What one probe found: whether a thing is usable, and a description."""

    name: str
    usable: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """One line of `deadheat verify`; `remedy` is empty if the thing is usable."""

    name: str
    status: ReadinessStatus
    detail: str
    remedy: str


def verify_machine(
    needs: Needs, state_root: Path, *, check_database: Callable[[], str]
) -> list[Readiness]:
    """Probe this machine and evaluate it. `check_database` connects and returns a description, or
    raises UserError or OSError."""
    observations = [
        _probe_python(),
        _probe_uv(),
        _probe_compiler(),
        probe_gpus(),
        probe_slurm(),
        _probe_database(check_database),
        probe_prefect_api(os.environ.get("PREFECT_API_URL"), required=needs.prefect_api),
        _probe_wandb(),
        _probe_disk(state_root),
    ]
    return evaluate(observations, needs)


def evaluate(observations: Iterable[Observation], needs: Needs) -> list[Readiness]:
    """Compare observations with the requirements: an unusable requirement is missing."""
    return [
        Readiness(
            name=seen.name,
            status=_status(seen, required=getattr(needs, seen.name)),
            detail=seen.detail,
            remedy="" if seen.usable else _REMEDIES[seen.name],
        )
        for seen in observations
    ]


def probe_gpus() -> Observation:
    """NVIDIA GPUs and their driver, through NVML. Not run on a GPU yet."""
    usable, detail = gpu.survey()
    return Observation("gpu", usable, detail)


def probe_slurm() -> Observation:
    """Slurm's commands, and whether its controller answers."""
    absent = [name for name in ("sbatch", "sinfo") if shutil.which(name) is None]
    if absent:
        return Observation("slurm", False, f"no {' and no '.join(absent)} on PATH")
    version = _first_line(["sinfo", "--version"])
    partitions = _first_line(["sinfo", "--noheader", "--format=%P"])
    if version is None or partitions is None:
        return Observation("slurm", False, f"{version or 'sinfo'}: the controller did not answer")
    return Observation("slurm", True, f"{version}; partition {partitions}")


def probe_prefect_api(url: str | None, *, required: bool = False) -> Observation:
    """Whether the configured Prefect server answers. Without one, each command starts its own,
    unless a site requires one that its nodes reach."""
    if not url:
        unset = "PREFECT_API_URL is unset"
        own = unset if required else f"{unset}: each command starts a temporary server"
        return Observation("prefect_api", not required, own)
    if not url.startswith(("http://", "https://")):
        return Observation("prefect_api", False, f"PREFECT_API_URL is not an http address: {url!r}")
    shown = _without_credentials(url)
    try:
        request = urllib.request.Request(f"{url.rstrip('/')}/health")
        with urllib.request.urlopen(request, timeout=_COMMAND_TIMEOUT_S) as response:
            healthy = response.status == 200
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Observation("prefect_api", False, f"{shown} did not answer: {reason}")
    return Observation("prefect_api", healthy, f"{shown} answers")


def _status(seen: Observation, *, required: bool) -> ReadinessStatus:
    if seen.usable:
        return "ok"
    return "missing" if required else "absent_but_optional"


def _probe_python() -> Observation:
    found = find_interpreters()
    listed = ", ".join(f"{each.version} ({each.path})" for each in found)
    return Observation("python", bool(found), listed or "no CPython 3.11 or later")


def _probe_uv() -> Observation:
    try:
        answer = run_uv(["--version"], timeout_s=_COMMAND_TIMEOUT_S)
    except OSError as error:
        return Observation("uv", False, f"uv can't be run: {error}")
    usable = answer.failure is None
    return Observation("uv", usable, answer.output.strip() if usable else answer.message)


def _probe_compiler() -> Observation:
    named = [os.environ["CXX"]] if os.environ.get("CXX") else []
    for name in [*named, "g++", "clang++", "c++"]:
        line = _first_line([name, "--version"]) if shutil.which(name) else None
        if line is not None:
            return Observation("compiler", True, line)
    return Observation("compiler", False, "no g++, clang++ or c++ on PATH")


def _probe_database(check_database: Callable[[], str]) -> Observation:
    try:
        return Observation("database", True, check_database())
    except (UserError, OSError) as error:
        return Observation("database", False, str(error))


def _probe_wandb() -> Observation:
    if os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return Observation("wandb", True, f"WANDB_MODE is {os.environ['WANDB_MODE']}")
    if os.environ.get("WANDB_API_KEY"):
        return Observation("wandb", True, "WANDB_API_KEY is set")
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        logged_in = netrc.netrc(path).authenticators(_WANDB_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        logged_in = False
    return Observation("wandb", logged_in, "logged in" if logged_in else "not logged in")


def _probe_disk(state_root: Path) -> Observation:
    folder = state_root.expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Observation("disk", False, f"{folder}: {error.strerror}")
    detail = (
        f"{free / 1e9:.0f} GB free at {folder}; a CUDA build of a framework takes about 5 GB, so "
        f"{_LEAST_FREE_BYTES / 1e9:.0f} GB are recommended"
    )
    writable = os.access(folder, os.W_OK)
    if not writable:
        detail = f"{folder} can't be written"
    return Observation("disk", writable and free >= _LEAST_FREE_BYTES, detail)


def _first_line(command: list[str]) -> str | None:
    """The first line that a command prints; None if it fails or does not answer in time."""
    try:
        return next(iter(read_output(command, _COMMAND_TIMEOUT_S).splitlines()), "")
    except (OSError, subprocess.SubprocessError):
        return None


def _without_credentials(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
