"""A Slurm of two nodes on this machine, with a worker: all trials of the layer `slurm` share it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import deployments
from benchcore.errors import UserError
from flows.server import services
from flows.server.services import Service

SITE = "chaos"
_POOL = f"{SITE}-h100"
_SCRIPT = Path(deployments.__file__).parent / "slurm-local" / "slurm_local.py"
_SITE = f"""
name = "{SITE}"
kind = "slurm"
accelerator = "cpu"
shard_minutes = 0.001
[pools.h100]
partition = "gpu"
gpu_type = "h100"
cpus = 1
gpus = 1
memory_mb = 900
minutes = 5
"""
"""Each duel is a shard of its own, and its job requests one of four simulated GPUs."""
_STARTING_S = 120.0
UNFINISHED = ("R", "PD", "CG", "S")


def list_variables(folder: Path) -> dict[str, str]:
    """Environment variables for clients of the cluster in this folder."""
    conf = folder / "etc" / "slurm.conf"
    return {"SLURM_CONF": str(conf), "DEADHEAT_SITES": str(folder / "sites")}


class RefusedError(Exception):
    """Slurm refused a command, as of a job that has ended."""


@dataclass(frozen=True)
class OwnSlurm:
    """A running cluster with a site and a worker that is started again when it ends."""

    folder: Path
    worker: Service

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for its clients."""
        return list_variables(self.folder)

    def run(self, *command: str) -> str:
        """Stdout of a client of Slurm. Raises RefusedError."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RefusedError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def list_jobs(self, *states: str) -> list[tuple[str, str]]:
        """Id and node of each job in these states, the newest first."""
        command = ("squeue", "-h", "-S", "-i", "-p", "gpu", "-t", ",".join(states), "-o", "%i|%N")
        lines = self.run(*command).splitlines()
        return [(job, node) for job, _, node in (line.partition("|") for line in lines)]

    def cancel_jobs(self) -> list[str]:
        """Cancel all jobs that have not ended; their ids."""
        found = [job for job, _ in self.list_jobs(*UNFINISHED)]
        for job in found:
            with suppress(RefusedError):
                self.run("scancel", job)
        return found

    def kill_daemon(self, program: str, *words: str) -> Callable[[], None]:
        """Kill one of the daemons; how to start it again. Raises LookupError."""
        mark = f"SLURM_CONF={self.variables['SLURM_CONF']}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
                environ = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            is_it = Path(arguments[0]).name == program and set(words) <= {*arguments}
            if is_it and mark in environ:
                os.kill(int(folder.name), signal.SIGKILL)
                known = (each.decode().partition("=") for each in environ if each)
                return lambda: _start(arguments, {key: value for key, _, value in known})
        raise LookupError(f"wanted a daemon {program} {' '.join(words)}, found none")


def _start(arguments: list[str], environ: Mapping[str, str]) -> None:
    subprocess.Popen(
        arguments,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def serve_slurm(folder: Path, server: Mapping[str, str], stack: ExitStack) -> OwnSlurm:
    """Start a cluster, and a worker that serves it, until `stack` is closed. `server` are the
    variables that lead to a Prefect server. Raises UserError where Slurm is not installed."""
    from tasks.server.prefect_server import has_worker

    (folder / "sites").mkdir(parents=True)
    (folder / "sites" / f"{SITE}.toml").write_text(_SITE)
    prefect = (sys.executable, "-m", "prefect", "worker", "start", "--type", "slurm")
    own = {"PREFECT_WORKER_QUERY_SECONDS": "1", "DEADHEAT_LOCKS": str(folder / "locks")}
    worker = Service(
        name="worker",
        folder=folder / "worker",
        command=(*prefect, "--pool", _POOL),
        environment={**server, **list_variables(folder), **own},
    )
    _call("start", folder)
    stack.callback(_call, "stop", folder)
    stack.callback(services.stop, worker)
    services.start(worker)
    services.wait_until(worker, lambda: has_worker(_POOL), _STARTING_S)
    return OwnSlurm(folder, worker)


def _call(what: str, folder: Path) -> None:
    command = [sys.executable, str(_SCRIPT), what, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(" ".join(done.stderr.split())[-600:])
