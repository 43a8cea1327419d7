"""The local Slurm as tests see it, and what they do where it is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SLURM_LOCAL = Path(__file__).parent.parent / "deployments" / "slurm-local" / "slurm_local.py"


@dataclass(frozen=True)
class LocalSlurm:
    """A cluster that SLURM_LOCAL brought up."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it needs."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}

    def run(self, *command: str) -> str:
        """Stdout of a client that must not fail."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        """Bring it up, or fail with the script's own words."""
        started = self._call("start")
        assert started.returncode == 0, started.stderr

    def stop(self) -> None:
        """End its jobs and daemons."""
        self._call("stop").check_returncode()

    def _call(self, what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SLURM_LOCAL), what, "--folder", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def find_daemons(self) -> dict[int, str]:
        """Every process of the cluster's own, by process id."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if str(self.folder).encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = command[0].decode()
            except OSError:
                continue
        return found


def need_slurm() -> None:
    """Skip where Slurm is not installed; in CI that is a failure."""
    if shutil.which("sbatch") is None:
        reason = f"wanted sbatch on PATH, found none; `python {SLURM_LOCAL} install` as root"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
