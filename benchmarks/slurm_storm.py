"""The storm: duels go through the work pool while a worker, a node, a job and slurmctld go."""

from __future__ import annotations

import json
import os
import platform
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from growth import list_matches
from local_slurm import LocalSlurm
from one_duel import store_results
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from slurm_cluster import Cluster, wait_for

CAMPAIGN = "storm"
_DUELS_PER_SHARD = 10
_NODE_AWAY_S = 20.0
"""How long a lost node's jobs continue before Slurm hears of it again and ends them."""


@dataclass
class _Watch:
    """Which documents there were, and whether one ever changed."""

    folder: Path
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def look(self) -> int:
        """How many documents there are."""
        for path in self.folder.glob("*.json"):
            found = path.stat()
            mark = (found.st_ino, found.st_mtime_ns)
            if self.seen.setdefault(path.stem, mark) != mark:
                self.changed.add(path.stem)
        return len(self.seen)


@dataclass(frozen=True)
class _Blow:
    """Something that happens to the cluster once a share of the duels is measured. `strike` does
    it, and reports what it hit."""

    at: float
    what: str
    strike: Callable[[], str]


def run_storm(cluster: Cluster, num_duels: int, screenshots: Path | None) -> int:
    """Measure, strike, measure again what was cancelled; print and keep what came of it."""
    cluster.be(shard_minutes=0.05 * _DUELS_PER_SHARD + 0.01)  # a duel counts as 3 s
    plan = cluster.plan(CAMPAIGN, *list_matches(num_duels))
    worker = [cluster.start_worker()]
    watch = _Watch(cluster.state.spool / CAMPAIGN)
    blows = [
        _Blow(0.1, "worker killed", lambda: _kill_worker(cluster, worker)),
        _Blow(0.25, "node lost, its jobs live on", lambda: _lose_node(cluster.slurm)),
        _Blow(0.5, "job cancelled with scancel", lambda: _cancel_job(cluster.slurm)),
        _Blow(0.65, "job preempted", lambda: _preempt(cluster.slurm)),
        _Blow(0.8, "slurmctld killed", lambda: _restart_controller(cluster.slurm)),
    ]
    began, struck = time.monotonic(), list[dict[str, Any]]()
    codes = [_measure(cluster, watch, blows, num_duels, struck)]
    codes.append(_measure(cluster, watch, blows, num_duels, struck))
    took = time.monotonic() - began
    with suppress(AssertionError):  # reported below
        wait_for(lambda: not cluster.slurm.run("squeue", "-h", "-t", "R,PD", "-o", "%i"))
    with temporary_settings({PREFECT_API_URL: cluster.environment["PREFECT_API_URL"]}):
        with get_client(sync_client=True) as client:
            runs = [_describe_run(run, client, cluster.slurm) for run in _list_runs(client)]
        if screenshots:
            _photograph(cluster.environment["PREFECT_API_URL"], runs, screenshots)
    checks = _check(cluster, watch, {duel.duel_run for duel in plan.duels}, runs)
    checks |= {"the first run reports the cancelled duels": codes[0] == 1}
    checks |= {"the second run measures them": codes[1] == 0, "all blows struck": not blows}
    attempts = list((cluster.state.campaigns / CAMPAIGN / "duels").glob("*.*"))
    result = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(took),
        "duels": num_duels,
        "flow_runs": len(runs),
        "slurm_jobs": sum(len(run["jobs"]) for run in runs),
        "blows": struck,
        "ends": _count_ends(runs),
        "measured_twice_and_refused": sum((path / "result.json").exists() for path in attempts),
        "cut_off_and_measured_again": sum(not (path / "result.json").exists() for path in attempts),
        "checks": checks,
    }
    _print(result, runs)
    store_results("slurm-storm", result)
    return 0 if all(checks.values()) else 1


def _measure(
    cluster: Cluster,
    watch: _Watch,
    blows: list[_Blow],
    num_duels: int,
    struck: list[dict[str, Any]],
) -> int:
    """The campaign once, with the blows that are due; the command's exit code."""
    log = cluster.sites / f"submitter-{len(cluster.started)}.log"
    with log.open("w") as stream:
        submitter = cluster.start(CAMPAIGN, stream)
        while submitter.poll() is None:
            measured = watch.look()
            if blows and measured >= blows[0].at * num_duels:
                blow = blows.pop(0)
                struck.append({"what": blow.what, "measured": measured, "hit": blow.strike()})
                print(f"{measured:4d} measured: {blow.what}: {struck[-1]['hit']}", flush=True)
            time.sleep(0.2)
    print(f"{watch.look():4d} measured: `deadheat run` ended with {submitter.returncode}")
    print("\n".join(f"     {line}" for line in log.read_text().splitlines()[-3:]), flush=True)
    return submitter.returncode


def _list_running(slurm: LocalSlurm) -> list[tuple[str, str]]:
    """Jobs of ours that run, and their nodes, the youngest first."""
    lines = slurm.run(
        "squeue", "-h", "-t", "R", "-S", "-i", "-p", "gpu", "-o", "%i %N"
    ).splitlines()
    return [(job, node) for job, node in map(str.split, lines)]


def _kill_worker(cluster: Cluster, worker: list[subprocess.Popen[str]]) -> str:
    worker[0].kill()
    worker[0].wait()
    time.sleep(5)
    worker[0] = cluster.start_worker()
    return "another one began after 5 s"


def _lose_node(slurm: LocalSlurm) -> str:
    """slurmd is gone, Slurm gives the node up, and its jobs' processes know nothing of it."""
    wait_for(lambda: bool(_list_running(slurm)))
    node = _list_running(slurm)[0][1]
    jobs = [job for job, where in _list_running(slurm) if where == node]
    restart = _kill_daemon(slurm, "slurmd", f"-N{node}")
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=storm")
    time.sleep(_NODE_AWAY_S)
    restart()
    return f"{node} with jobs {', '.join(jobs)}; it came back after {_NODE_AWAY_S:.0f} s"


def _cancel_job(slurm: LocalSlurm) -> str:
    wait_for(lambda: bool(_list_running(slurm)))
    job = _list_running(slurm)[0][0]
    slurm.run("scancel", job)
    return f"job {job}"


def _preempt(slurm: LocalSlurm) -> str:
    """As many urgent jobs as it takes until one of ours makes room."""
    command = ["sbatch", "--parsable", "--partition=urgent", "--gres=gpu:h100:2", "--nodes=1"]
    wait_for(lambda: len(_list_running(slurm)) == 4)
    before = {job for job, _ in _list_running(slurm)}
    slurm.run(*command, "--output=/dev/null", "--wrap=sleep 3")

    def preempted() -> list[str]:
        preempted = slurm.run("squeue", "-h", "-t", "PR", "-o", "%i").split()
        return [job for job in preempted if job in before]

    wait_for(lambda: bool(preempted()))
    return f"jobs {', '.join(preempted())} by an urgent one"


def _restart_controller(slurm: LocalSlurm) -> str:
    restart = _kill_daemon(slurm, "slurmctld")
    time.sleep(10)
    restart()
    return "away for 10 s"


def _kill_daemon(slurm: LocalSlurm, program: str, mark: str = "") -> Callable[[], None]:
    """Kill one of the cluster's daemons outright; how to start it again."""
    for pid in slurm.find_daemons():
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        if argv and Path(argv[0]).name == program and mark in "".join(argv):
            environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")[:-1]
            os.kill(pid, signal.SIGKILL)
            break
    else:
        raise LookupError(f"wanted a daemon {program} {mark}, found none")
    variables = dict(each.split("=", 1) for each in environ)

    def restart() -> None:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        subprocess.Popen(
            argv, env=variables, stderr=subprocess.DEVNULL, start_new_session=True, **quiet
        )

    return restart


def _list_runs(client: SyncPrefectClient) -> list[FlowRun]:
    runs = client.read_flow_runs(limit=200)
    return [run for run in runs if run.work_pool_name]


def _describe_run(run: FlowRun, client: SyncPrefectClient, slurm: LocalSlurm) -> dict[str, Any]:
    """The records of Prefect and Slurm on one flow run."""
    fields = ["--format=jobid,state%40,nodelist", f"--name=deadheat-{run.id}"]
    lines = slurm.run("sacct", "-X", "-n", "-P", "-D", *fields).splitlines()
    states = client.read_flow_run_states(run.id)
    return {
        "id": str(run.id),
        "name": run.name,
        "end": run.state_name,
        "states": [(state.name, state.message or "") for state in states],
        "jobs": [line.split("|") for line in lines],
    }


def _went_well(run: dict[str, Any]) -> bool:
    """Whether its first job completed and no other was needed."""
    return [state for _, state, _ in run["jobs"]] == ["COMPLETED"]


def _count_ends(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often Prefect ended a flow run so while Slurm ended its jobs so."""
    pairs = Counter(
        (run["end"], ", ".join(state.split()[0] for _, state, _ in run["jobs"])) for run in runs
    )
    rows = pairs.most_common()
    return [{"prefect": end, "slurm": jobs, "flow_runs": count} for (end, jobs), count in rows]


def _check(
    cluster: Cluster, watch: _Watch, wanted: set[str], runs: list[dict[str, Any]]
) -> dict[str, bool]:
    documents = {path.stem: path for path in watch.folder.glob("*.json")}
    with sqlite3.connect(cluster.state.root / "deadheat.db") as database:
        rows = [row[0] for row in database.execute("SELECT id FROM duel_run")]
    known = {job for run in runs for job, _, _ in run["jobs"]}
    of_jobs = {
        json.loads(path.read_text())["allocation"]["slurm_job_id"] for path in documents.values()
    }
    final = {"Completed", "Failed", "Crashed", "Cancelled"}
    rejected = cluster.state.spool / "rejected"
    return {
        "each duel has its document in the spool": set(documents) == wanted,
        "each duel has one row in the database": sorted(rows) == sorted(wanted),
        "no document ever changed": not watch.changed,
        "nothing was rejected": not rejected.exists() or not any(rejected.iterdir()),
        "each document's job is one that Slurm knows": of_jobs <= known,
        "each flow run ended": {run["end"] for run in runs} <= final,
        "each job ended": not cluster.slurm.run("squeue", "-h", "-t", "R,PD", "-o", "%i"),
    }


def _print(result: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    print(f"\n{'Prefect':<12} {'Slurm':<24} flow runs")
    for row in result["ends"]:
        print(f"{row['prefect']:<12} {row['slurm']:<24} {row['flow_runs']}")
    for run in runs:
        if not _went_well(run):
            print(f"\n{run['name']}, jobs {run['jobs']}")
            print("\n".join(f"  {name:<14} {words[:150]}" for name, words in run["states"]))
    print()
    for what, held in result["checks"].items():
        print(f"{'ok  ' if held else 'FAIL'} {what}")
    print(
        f"{result['duels']} duels, {result['flow_runs']} flow runs, {result['slurm_jobs']} jobs in "
        f"{result['seconds']} s; {result['measured_twice_and_refused']} duels were measured twice "
        f"and the second document refused, {result['cut_off_and_measured_again']} were cut off"
    )


def _photograph(api: str, runs: list[dict[str, Any]], folder: Path) -> None:
    """Pages of the UI: all flow runs, and each that did not end with its first job."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    unwell = [run for run in runs if not _went_well(run)]
    pages = {"runs": "/runs", **{run["name"]: f"/runs/flow-run/{run['id']}" for run in unwell}}
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        for name, address in pages.items():
            page.goto(api.removesuffix("/api") + address)
            page.wait_for_timeout(4000)
            page.screenshot(path=str(folder / f"{name}.png"))
        browser.close()
