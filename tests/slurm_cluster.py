"""A site on the local Slurm with a real Prefect server: what campaigns are measured with in tests
and in benchmarks."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from local_slurm import LocalSlurm
from prefect_server import PREFECT, serve_prefect

from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.protocol import DuelLimits
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.state import State, open_state

DEADHEAT = str(Path(sys.executable).parent / "deadheat")
POOL = "pair-h100"
# Two duels of 3 s each fit into a shard.
SITE = """
name = "pair"
kind = "slurm"
accelerator = "cpu"
shard_minutes = {shard_minutes}
{more}
[pools.h100]
partition = "{partition}"
gpu_type = "h100"
cpus = 1
gpus = {gpus}
memory_mb = 900
minutes = {minutes}
"""
DEFAULTS = {"partition": "gpu", "shard_minutes": 0.11, "minutes": 5, "gpus": 1, "more": ""}


CHEAP = DuelLimits(starts=1, block_ms=1.0)
"""Of the duels that the tests send to Slurm."""


@dataclass
class Cluster:
    """A Slurm, a Prefect server, a worker, and a site that names them."""

    slurm: LocalSlurm
    environment: dict[str, str]
    state: State
    sites: Path
    others: frozenset[str]
    """Jobs of the tests that used this Slurm before."""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def be(self, **changes: object) -> None:
        """Write the site as it will be from now on."""
        (self.sites / "pair.toml").write_text(SITE.format(**{**DEFAULTS, **changes}))

    def plan(self, campaign: str, *matches: Match, separate_nodes: bool = False) -> Plan:
        """A campaign of cheap duels, in the state folder."""
        profile = Profile(name="cheap", matches=matches, limits=CHEAP)
        plan = draft_plan(profile, site="pair", campaign=campaign)
        plan = dataclasses.replace(plan, separate_nodes=separate_nodes)
        save_plan(plan, campaign_folder(self.state, campaign) / "plan.json")
        return plan

    def start(self, campaign: str, log: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Measure a campaign, and don't wait for it."""
        process = subprocess.Popen(
            [DEADHEAT, "run", plan_path(self, campaign)],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
        )
        self.started.append(process)
        return process

    def list_jobs(self) -> dict[str, str]:
        """Every job of ours that Slurm still knows, by its id: its state."""
        return {job: state for job, state in _list_all(self.slurm) if job not in self.others}

    def documents(self, campaign: str) -> dict[str, bytes]:
        """The spool's documents."""
        folder = self.state.spool / campaign
        return {path.name: path.read_bytes() for path in folder.glob("*.json")}

    def start_worker(self) -> subprocess.Popen[str]:
        """A worker of the site's pool, once it has registered."""
        path = self.sites / f"worker-{len(self.started)}.log"
        command = [PREFECT, "worker", "start", "--type", "slurm", "--pool", POOL]
        with path.open("w") as log:
            worker = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, text=True
            )
        self.started.append(worker)
        wait_for(lambda: "started!" in path.read_text())
        return worker


@contextmanager
def open_cluster(
    folder: Path, slurm: LocalSlurm, *, ui: bool = False, database: str | None = None
) -> Iterator[Cluster]:
    """A server, a state folder and a site; whatever was started is killed at the end."""
    state = open_state(folder / "state")
    with serve_prefect(folder, slurm.environment, ui=ui, database=database) as environment:
        environment |= {"DEADHEAT_SITES": str(folder), "DEADHEAT_STATE": str(state.root)}
        others = frozenset(job for job, _ in _list_all(slurm))
        found = Cluster(slurm, environment, state, folder, others)
        found.be()
        try:
            yield found
        finally:
            for process in found.started:
                process.kill()
                process.communicate()


def wait_for(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.2)


def plan_path(cluster: Cluster, campaign: str) -> str:
    """What `deadheat run` is given."""
    return str(campaign_folder(cluster.state, campaign) / "plan.json")


def _list_all(slurm: LocalSlurm) -> list[tuple[str, str]]:
    listed = slurm.run("squeue", "-h", "-t", "all", "-o", "%i %T").splitlines()
    return [(job, state) for job, state in map(str.split, listed)]
