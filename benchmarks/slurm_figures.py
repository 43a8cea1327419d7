"""Figures of the way through Prefect to Slurm, compared with bare `sbatch` of the same duels."""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from one_duel import store_results
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from slurm_cluster import CHEAP, Cluster, wait_for

from benchcore.planning.profiles import Match
from benchcore.planning.tracks import STDLIB
from benchcore.running.duels import provision_release
from benchcore.running.plans import campaign_folder
from flows.server import services
from flows.server.postgres import Postgres, find_postgres, make_cluster, make_url, open_database
from flows.server.services import Service

_DUELS = 5
_SHARDS = 3
_BARE = Path(__file__).with_name("slurm_bare.py")


def measure_shards(cluster: Cluster) -> dict[str, Any]:
    """Shards of some duels, one at a time on an idle cluster, through the pool and bare."""
    cluster.be(shard_minutes=1)
    rows: dict[str, list[dict[str, float]]] = {"pool": [], "bare": []}
    for number in range(_SHARDS):
        for way, rows_of_way in rows.items():
            name = f"{way}-{number}"
            plan = cluster.plan(name, *_draft(_DUELS))
            for request in plan.releases:
                provision_release(plan, request, cluster.state, lambda text: None)
            before = set(cluster.list_jobs())
            submitted = _run_pool(cluster, name) if way == "pool" else _run_bare(cluster, name)
            (job,) = set(cluster.list_jobs()) - before
            wait_for(lambda job=job: cluster.list_jobs()[job] == "COMPLETED")
            rows_of_way.append(_describe_shard(cluster, name, job, submitted))
    return {way: _take_medians(found) for way, found in rows.items()}


def queue_many(cluster: Cluster, num: int) -> dict[str, float]:
    """Seconds until so many shards are in Slurm's queue, and what server and worker hold then."""
    cluster.be(shard_minutes=0.01)
    cluster.plan("queue", *_draft(num))
    cluster.slurm.run("scontrol", "update", "partitionname=gpu", "state=down")
    before = len(cluster.list_jobs())
    began = time.monotonic()
    with (cluster.sites / "queue.log").open("w") as log:
        submitter = cluster.start("queue", log)
        with temporary_settings({PREFECT_API_URL: cluster.environment["PREFECT_API_URL"]}):
            wait_for(lambda: _count_runs() >= num, timeout_s=600)
        handed_over_s = time.monotonic() - began
        wait_for(lambda: len(cluster.list_jobs()) - before >= num, timeout_s=600)
        queued_s = time.monotonic() - began
    held = {
        "server_mb": _sum_rss("prefect server start", cluster),
        "worker_mb": _sum_rss("prefect worker start", cluster),
        "database_mb": _sum_rss("postgres", cluster),
    }
    submitter.kill()
    locked = (cluster.sites / "server.log").read_text(errors="replace").count("database is locked")
    return {
        "shards": num,
        "flow_runs_created_s": round(handed_over_s, 1),
        "all_in_slurm_s": round(queued_s, 1),
        **{key: round(value) for key, value in held.items()},
        "database_is_locked": locked,
    }


def store_figures(figures: dict[str, Any]) -> None:
    """Print and store them."""
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "load_1min": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(figures, indent=1))
    store_results("slurm-figures", {**machine, **figures})


@contextmanager
def serve_postgres() -> Iterator[str]:
    """A PostgreSQL of our own, in a folder of its own; its URL."""
    found = find_postgres()
    assert isinstance(found, Postgres), found
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        password = Path(folder, "password")
        password.write_text("benchmark")
        make_cluster(found, Path(folder, "data"), password)
        free.close()
        service = Service(
            name="database",
            folder=Path(folder, "log"),
            command=found.command(Path(folder, "data"), port),
        )
        services.start(service)
        try:
            services.wait_until(service, lambda: open_database(port, "benchmark"), 60)
            yield make_url(port, "benchmark")
        finally:
            services.stop(service)


def _draft(num: int) -> list[Match]:
    settings = {"workload": "noop", "case": "bare", "arms": (STDLIB,), "expected_s": 3.0}
    limits = replace(CHEAP, rounds=2, passes=False)
    return [Match(**settings, limits=replace(limits, budget_s=1000.0 + n)) for n in range(num)]


def _run_pool(cluster: Cluster, name: str) -> float:
    """When the flow run was created (seconds since the epoch)."""
    with (cluster.sites / f"{name}.log").open("w") as log:
        assert cluster.start(name, log).wait(300) == 0
    with (
        temporary_settings({PREFECT_API_URL: cluster.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        (run,) = [
            each
            for each in client.read_flow_runs()
            if each.parameters.get("campaign") == name and each.work_pool_name
        ]
    assert run.created is not None
    return run.created.timestamp()


def _run_bare(cluster: Cluster, name: str) -> float:
    options = ["--partition=gpu", "--gres=gpu:h100:1", "--cpus-per-task=1", "--mem=900", "--wait"]
    command = f"exec {sys.executable} {_BARE} {cluster.state.root} {name}"
    now = time.time()
    log = cluster.sites / f"{name}.log"
    cluster.slurm.run("sbatch", *options, f"--output={log}", f"--wrap={command}")
    return now


def _describe_shard(cluster: Cluster, name: str, job: str, submitted: float) -> dict[str, float]:
    """From submission to the first block, and what was spent outside of duels."""
    folder = campaign_folder(cluster.state, name)
    logs = [*folder.glob("shards/*/progress.jsonl")] or [folder / "progress.jsonl"]
    events = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    begun = [
        each["time"] for each in events if each.get("what") == "begun" and each["event"] == "duel"
    ]
    documents = [json.loads(text)["allocation"] for text in cluster.documents(name).values()]
    inside = [
        datetime.fromisoformat(one["ended_at"]).timestamp()
        - datetime.fromisoformat(one["started_at"]).timestamp()
        for one in documents
    ]
    environment = {"SLURM_TIME_FORMAT": "%s", **cluster.slurm.environment}
    command = ["sacct", "-X", "-n", "-P", "-j", job, "--format=start,end"]
    wall = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    start, end = map(int, wall.strip().split("|"))
    between = [later - earlier for earlier, later in pairwise(begun)]
    return {
        "to_first_block_s": min(each["time"] for each in events if each["event"] == "round")
        - submitted,
        "job_s": end - start,
        "duels_s": sum(inside),
        "beside_each_duel_s": statistics.mean(between) - statistics.mean(inside),
    }


def _take_medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}


def _count_runs() -> int:
    with get_client(sync_client=True) as client:
        pages = [client.read_flow_runs(limit=200, offset=at) for at in (0, 200)]
    return sum(bool(run.work_pool_name) for page in pages for run in page)


def _sum_rss(word: str, cluster: Cluster) -> float:
    """MB of memory of the processes whose command line holds a word."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            ours = str(cluster.sites).encode() in (entry / "environ").read_bytes()
            if word in line and (ours or word == "postgres"):
                total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total / 1e6
