"""A campaign inside Slurm allocations: two nodes with two GPUs each, a real Prefect server, and a
worker. Nothing is lost, nothing is measured twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from local_slurm import LocalSlurm
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_server import PREFECT, serve_prefect

from benchcore.campaign import campaign_folder, draft_plan, provision_release
from benchcore.errors import UserError
from benchcore.matrix import Plan, save_plan
from benchcore.profiles import Match, Profile
from benchcore.state import State, open_state
from benchcore.tracks import STDLIB
from flows.shards import measure_in_shards

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
memory_mb = 900
minutes = {minutes}
"""
ASKED = {"partition": "gpu", "shard_minutes": 0.11, "minutes": 5, "more": ""}


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

    def be(self, **asked: object) -> None:
        """Make the site as it is to be from now on."""
        (self.sites / "pair.toml").write_text(SITE.format(**{**ASKED, **asked}))

    def plan(self, campaign: str, *matches: Match) -> Plan:
        """A campaign of cheap duels, in the state folder."""
        profile = Profile(name="cheap", matches=matches, starts=1, block_ms=1.0)
        plan = draft_plan(profile, site="pair", campaign=campaign)
        save_plan(plan, campaign_folder(self.state, campaign) / "plan.json")
        return plan

    def start(self, campaign: str) -> subprocess.Popen[str]:
        """Measure a campaign, and don't wait for it."""
        process = subprocess.Popen(
            [DEADHEAT, "run", _plan_path(self, campaign)],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
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


@pytest.fixture(scope="module")
def cluster(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("campaigns")
    state = open_state(folder / "state")
    with serve_prefect(folder, slurm) as environment, pytest.MonkeyPatch.context() as patched:
        environment |= {"DEADHEAT_SITES": str(folder), "DEADHEAT_STATE": str(state.root)}
        for name in ("DEADHEAT_SITES", "PREFECT_API_URL"):
            patched.setenv(name, environment[name])
        others = frozenset(job for job, _ in _list_all(slurm))
        found = Cluster(slurm, environment, state, folder, others)
        found.be()
        with temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}):
            yield found
        for process in found.started:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def worker(cluster: Cluster) -> Iterator[None]:
    log = (cluster.sites / "worker.log").open("wb")
    command = [PREFECT, "worker", "start", "--type", "slurm", "--pool", POOL]
    process = subprocess.Popen(command, env=cluster.environment, stdout=log, stderr=log)
    _wait_for(lambda: "started!" in (cluster.sites / "worker.log").read_text())
    yield
    process.terminate()
    process.wait(30)
    log.close()


def _noop(rounds: int) -> Match:
    return Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3, rounds=rounds)


def test_without_a_worker_nothing_is_sent(cluster: Cluster) -> None:
    cluster.plan("alone", _noop(2))
    with pytest.raises(UserError, match=f"prefect worker start --type slurm --pool {POOL}"):
        measure_in_shards("alone", str(cluster.state.root))
    assert not cluster.list_jobs()


@pytest.mark.usefixtures("worker")
def test_a_campaign_survives_its_submitter_and_a_lost_job_and_measures_nothing_twice(
    cluster: Cluster,
) -> None:
    plan = cluster.plan("night", *map(_noop, range(2, 10)))
    cluster.slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        submitter = cluster.start("night")
        _wait_for(lambda: list(cluster.list_jobs().values()) == ["PENDING"] * 4)
        submitter.send_signal(signal.SIGKILL)
        submitter.wait()
        log = campaign_folder(cluster.state, "night") / "progress.jsonl"
        before = len(log.read_text())
        follower = cluster.start("night")
        _wait_for(lambda: log.read_text()[before:].count(": waits as Slurm job ") >= 4)
        jobs = cluster.list_jobs()
        assert len(jobs) == 4  # not sent again
        lost = min(jobs, key=int)
        pages = cluster.slurm.ask("squeue", "-h", "-o", "%k").splitlines()
        cluster.slurm.ask("scancel", lost)
    finally:
        cluster.slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")
    _, said = follower.communicate(timeout=240)
    assert follower.returncode == 1, said
    assert said.count(f"noop bare, noop bare: Slurm job {lost} was cancelled (CANCELLED") == 1
    measured = cluster.documents("night")
    assert len(measured) == 6

    done = subprocess.run(
        [DEADHEAT, "run", _plan_path(cluster, "night"), "--json"],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["failures"] == [] and Path(outcome["dashboard"]).name == "index.html"
    jobs = cluster.list_jobs()
    assert jobs.pop(lost) == "CANCELLED" and set(jobs.values()) == {"COMPLETED"}
    documents = cluster.documents("night")
    assert set(documents) == {f"{duel.duel_run}.json" for duel in plan.duels}
    assert all(documents[name] == measured[name] for name in measured)
    with sqlite3.connect(cluster.state.root / "deadheat.db") as database:
        rows = database.execute("SELECT id, site, node FROM duel_run").fetchall()
    assert {f"{row[0]}.json" for row in rows} == set(documents) and len(rows) == 8
    allocations = [json.loads(document)["allocation"] for document in documents.values()]
    assert {each["site"] for each in allocations} == {"pair"}
    assert {each["slurm_job_id"] for each in allocations} == set(jobs)
    told = [each["slurm"] for each in allocations]
    assert {each["job_id"] for each in told} == set(jobs)
    assert {each["node"] for each in told} <= {"node01", "node02"}
    assert all(each["queue_s"] >= 0 and each["exclusive"] is False for each in told)
    assert {len(each["gpus"]) for each in told} == {1}
    for flow_run in {each["flow_run"] for each in told}:  # from the result to its run, and back
        assert len({each["job_id"] for each in told if each["flow_run"] == flow_run}) == 1
    assert len(pages) == 4 and all("/runs/flow-run/" in page for page in pages)
    assert {page.rpartition("/")[2] for page in pages} & {each["flow_run"] for each in told}


@pytest.mark.usefixtures("worker")
def test_a_job_stops_before_its_limit_and_the_rest_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a minute's job half is for measuring, less than the second duel is expected to take; in
    a job of its own it is begun, and stopped."""
    monkeypatch.setattr("benchcore.placement._START_UP_S", -120.0)  # packed too tightly
    cluster.be(minutes=1, shard_minutes=2)
    fine = Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=35, starts=2)
    hangs = Match(workload="faulty", case="hang_in_step", arms=(STDLIB,), expected_s=35)
    plan = cluster.plan("long", fine, hangs)
    for request in plan.releases:
        provision_release(plan, request, cluster.state, lambda text: None)
    before = cluster.list_jobs()
    (lost,) = measure_in_shards("long", str(cluster.state.root))
    assert lost.startswith("faulty hang_in_step: ")
    assert "would not have ended before its allocation" in lost
    assert set(cluster.documents("long")) == {f"{plan.duels[0].duel_run}.json"}
    jobs = [job for job in cluster.list_jobs() if job not in before]
    assert len(jobs) == 2
    last = max(jobs, key=int)
    _wait_for(lambda: cluster.list_jobs()[last] not in ("RUNNING", "COMPLETING"))
    assert cluster.list_jobs()[last] != "TIMEOUT"


@pytest.mark.usefixtures("worker")
def test_a_node_that_does_not_share_the_folder_says_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.be(more=f'state = "{tmp_path}"')
    plan = cluster.plan("astray", _noop(2))
    for request in plan.releases:
        provision_release(plan, request, cluster.state, lambda text: None)
    (lost,) = measure_in_shards("astray", str(cluster.state.root))
    assert "this node does not share that folder" in lost
    assert not cluster.documents("astray")


@pytest.mark.usefixtures("worker")
def test_what_sbatch_refuses_is_told_in_its_own_words(cluster: Cluster) -> None:
    cluster.be(partition="nowhere")
    cluster.plan("refused", _noop(2))
    before = cluster.list_jobs()
    (lost,) = measure_in_shards("refused", str(cluster.state.root))
    assert lost.startswith("noop bare: ") and "invalid partition specified: nowhere" in lost
    assert cluster.list_jobs() == before


def _list_all(slurm: LocalSlurm) -> list[tuple[str, str]]:
    told = slurm.ask("squeue", "-h", "-t", "all", "-o", "%i %T").splitlines()
    return [(job, state) for job, state in map(str.split, told)]


def _plan_path(cluster: Cluster, campaign: str) -> str:
    return str(campaign_folder(cluster.state, campaign) / "plan.json")


def _wait_for(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
