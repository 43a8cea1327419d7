"""A campaign inside Slurm allocations: two nodes with two GPUs each, a real Prefect server, and a
worker. Nothing is lost, nothing is measured twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from local_slurm import LocalSlurm
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_server import end
from slurm_cluster import CHEAP, DEADHEAT, POOL, Cluster, open_cluster, plan_path, wait_for

from benchcore.errors import UserError
from benchcore.planning.profiles import Match
from benchcore.planning.tracks import STDLIB
from benchcore.running.duels import provision_release
from benchcore.running.plans import campaign_folder
from tasks.slurm.shards import measure_in_shards

_SUSPENDED_S = 3.0
LOST_WORKER = Path(__file__).parents[1] / "tasks" / "lost_dask_worker.py"


@pytest.fixture(scope="module")
def cluster(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("campaigns")
    with open_cluster(folder, slurm) as found, pytest.MonkeyPatch.context() as patched:
        for name in ("DEADHEAT_SITES", "PREFECT_API_URL"):
            patched.setenv(name, found.environment[name])
        with temporary_settings({PREFECT_API_URL: found.environment["PREFECT_API_URL"]}):
            yield found


@pytest.fixture(scope="module")
def worker(cluster: Cluster) -> Iterator[None]:
    process = cluster.start_worker()
    yield
    end(process)


def _noop(rounds: int) -> Match:
    return Match(
        workload="noop",
        case="bare",
        arms=(STDLIB,),
        expected_s=3,
        limits=replace(CHEAP, rounds=rounds),
    )


def test_without_a_worker_nothing_is_sent(cluster: Cluster) -> None:
    cluster.plan("alone", _noop(2))
    with pytest.raises(UserError, match=f"prefect worker start --type slurm --pool {POOL}"):
        measure_in_shards("alone", str(cluster.state.root))
    assert not cluster.list_jobs()


@pytest.mark.usefixtures("worker")
def test_a_campaign_survives_a_killed_submitter_and_a_lost_job_without_measuring_twice(
    cluster: Cluster,
) -> None:
    plan = cluster.plan("night", *map(_noop, range(2, 10)))
    cluster.slurm.run("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        submitter = cluster.start("night")
        wait_for(lambda: list(cluster.list_jobs().values()) == ["PENDING"] * 4)
        submitter.send_signal(signal.SIGKILL)
        submitter.wait()
        log = campaign_folder(cluster.state, "night") / "progress.jsonl"
        before = len(log.read_text())
        follower = cluster.start("night")
        wait_for(lambda: log.read_text()[before:].count(": waits as Slurm job ") >= 4)
        jobs = cluster.list_jobs()
        assert len(jobs) == 4  # not sent again
        lost = min(jobs, key=int)
        pages = cluster.slurm.run("squeue", "-h", "-o", "%k").splitlines()
        cluster.slurm.run("scancel", lost)
    finally:
        cluster.slurm.run("scontrol", "update", "partitionname=gpu", "state=up")
    _, printed = follower.communicate(timeout=240)
    assert follower.returncode == 1, printed
    assert printed.count(f"noop bare, noop bare: Slurm job {lost} was cancelled (CANCELLED") == 1
    measured = cluster.documents("night")
    assert len(measured) == 6

    done = subprocess.run(
        [DEADHEAT, "run", plan_path(cluster, "night"), "--json"],
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
    records = [each["slurm"] for each in allocations]
    assert {each["job_id"] for each in records} == set(jobs)
    assert {each["node"] for each in records} <= {"node01", "node02"}
    assert all(each["queue_s"] >= 0 and each["exclusive"] is False for each in records)
    assert {len(each["gpus"]) for each in records} == {1}
    for flow_run in {each["flow_run"] for each in records}:  # from the result to its run, and back
        assert len({each["job_id"] for each in records if each["flow_run"] == flow_run}) == 1
    assert len(pages) == 4 and all("/runs/flow-run/" in page for page in pages)
    assert {page.rpartition("/")[2] for page in pages} & {each["flow_run"] for each in records}


@pytest.mark.usefixtures("worker")
def test_a_job_stops_before_its_limit_and_the_rest_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a minute's job half is for measuring, less than the second duel is expected to take; in
    a job of its own it is begun, and stopped."""
    monkeypatch.setattr("benchcore.running.shards._START_UP_S", -120.0)  # packed too tightly
    cluster.be(minutes=1, shard_minutes=2)
    fine = Match(
        workload="noop", case="bare", arms=(STDLIB,), expected_s=35, limits=replace(CHEAP, starts=2)
    )
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
    wait_for(lambda: cluster.list_jobs()[last] not in ("RUNNING", "COMPLETING"))
    assert cluster.list_jobs()[last] != "TIMEOUT"


@pytest.mark.usefixtures("worker")
def test_a_node_without_the_shared_folder_reports_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.be(more=f'state = "{tmp_path}"')
    plan = cluster.plan("astray", _noop(2))
    for request in plan.releases:
        provision_release(plan, request, cluster.state, lambda text: None)
    (lost,) = measure_in_shards("astray", str(cluster.state.root))
    assert "this node does not share it" in lost
    assert not cluster.documents("astray")


@pytest.mark.usefixtures("worker")
def test_a_refusal_is_reported_with_the_message_of_sbatch(cluster: Cluster) -> None:
    cluster.be(partition="nowhere")
    cluster.plan("refused", _noop(2))
    before = set(cluster.list_jobs())
    (lost,) = measure_in_shards("refused", str(cluster.state.root))
    assert lost.startswith("noop bare: ") and "invalid partition specified: nowhere" in lost
    assert set(cluster.list_jobs()) == before


@pytest.mark.usefixtures("worker")
def test_duels_run_side_by_side_on_the_gpus_of_an_allocation(cluster: Cluster) -> None:
    cluster.be(gpus=2, shard_minutes=5)
    plan = cluster.plan("abreast", *map(_noop, range(200, 204)))  # a second or more each
    assert measure_in_shards("abreast", str(cluster.state.root)) == []
    documents = list(map(json.loads, cluster.documents("abreast").values()))
    assert len(documents) == len(plan.duels)
    allocations = [each["allocation"] for each in documents]
    assert len({each["slurm_job_id"] for each in allocations}) == 1
    by_gpu = [[each for each in allocations if each["slurm"]["gpus"] == [gpu]] for gpu in "01"]
    assert all(by_gpu)
    assert any(
        one["started_at"] < other["ended_at"] and other["started_at"] < one["ended_at"]
        for one in by_gpu[0]
        for other in by_gpu[1]
    )


@pytest.mark.usefixtures("worker")
def test_a_job_that_slurm_suspends_measures_its_duel_once(cluster: Cluster) -> None:
    """As gang scheduling does, or an operator: every process of the job is stopped for a while."""
    cluster.be(shard_minutes=5)
    plan = cluster.plan("suspended", _noop(200))  # some seconds
    for request in plan.releases:
        provision_release(plan, request, cluster.state, lambda text: None)
    folder, before = campaign_folder(cluster.state, "suspended"), set(cluster.list_jobs())

    def suspend() -> str:
        wait_for(lambda: any('"round"' in each.read_text() for each in folder.rglob("*.jsonl")))
        (job,) = set(cluster.list_jobs()) - before
        cluster.slurm.run("scontrol", "suspend", job)
        assert cluster.list_jobs()[job] == "SUSPENDED"
        time.sleep(_SUSPENDED_S)
        cluster.slurm.run("scontrol", "resume", job)
        return job

    with ThreadPoolExecutor(1) as pool:
        suspended = pool.submit(suspend)
        assert measure_in_shards("suspended", str(cluster.state.root)) == []
        job = suspended.result()
    (document,) = map(json.loads, cluster.documents("suspended").values())
    assert [each["status"] for each in document["contenders"]] == ["ok"]
    began, ended = (document["allocation"][f"{each}_at"] for each in ("started", "ended"))
    took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    assert took.total_seconds() > _SUSPENDED_S
    assert document["allocation"]["slurm_job_id"] == job
    assert set(cluster.list_jobs()) - before == {job}


@pytest.mark.usefixtures("worker")
def test_allocations_of_a_confirmation_are_on_different_nodes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    cluster.be(shard_minutes=5)
    cluster.plan("separate", *map(_noop, range(2, 4)), separate_nodes=True)
    assert measure_in_shards("separate", str(cluster.state.root)) == []
    documents = list(map(json.loads, cluster.documents("separate").values()))
    nodes = sorted(each["allocation"]["slurm"]["node"] for each in documents)
    assert nodes == ["node01", "node02"]


def test_a_finished_duel_is_not_repeated_when_its_dask_worker_is_lost(
    cluster: Cluster,
) -> None:
    plan = cluster.plan("lost-slot", *map(_noop, range(2, 4)))
    for request in plan.releases:
        provision_release(plan, request, cluster.state, lambda text: None)
    first, other = (duel.duel_run for duel in plan.duels)
    log = cluster.sites / "lost-slot.jsonl"
    order = ["lost-slot", str(cluster.state.root), str(log), first, other]
    done = subprocess.run(
        [sys.executable, str(LOST_WORKER), *order],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended[first][0] == "Cached" and ended[other][0] in ("Completed", "Cached")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    duels = [(each["duel_run"], each["what"]) for each in events if each["event"] == "duel"]
    assert [what for duel_run, what in duels if duel_run == first] == ["begun", "done"]
