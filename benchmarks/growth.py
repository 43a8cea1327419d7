"""What a duel costs besides measuring, and whether that grows with their number: campaigns of duels
of the empty step, each with one start of two rounds and no passes.

    .venv/bin/python benchmarks/growth.py --duels 10 100 1000
    .venv/bin/python benchmarks/growth.py --duels 10 1000 --slurm

Each campaign has a state folder of its own, and is run by `deadheat run`, as a night is: with a
Prefect server, checks, verdicts and the dashboard. With `--slurm` on a local Slurm of two nodes
with two simulated GPUs each. Memory is that of the command alone. `per_duel` has the milliseconds
of each flow and task, as Prefect has stored them, and of the duel itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # the cluster that tests bring up, too

from local_slurm import LocalSlurm
from one_duel import RESULTS, store_results
from slurm_cluster import CHEAP, DEADHEAT, open_cluster, plan_path

from benchcore.cell.measure.host import describe_host
from benchcore.planning.matrix import save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.state import open_state

CAMPAIGN = "growth"
_EXPECTED_S = 3.0
_LOOK_S = 0.2
_DAY_MS = 86_400_000.0
_COSTS = """
SELECT 'flow ' || flow.name, sum(julianday(total_run_time) - julianday('1970-01-01')),
    sum(julianday(start_time) - julianday(expected_start_time))
FROM flow_run JOIN flow ON flow.id = flow_id WHERE end_time IS NOT NULL GROUP BY 1
UNION ALL
SELECT 'task ' || substr(task_key, 1, instr(task_key, '-') - 1),
    sum(julianday(total_run_time) - julianday('1970-01-01')),
    sum(julianday(start_time) - julianday(expected_start_time))
FROM task_run WHERE end_time IS NOT NULL GROUP BY 1
"""
"""Prefect's SQLite has durations as times of 1970, and a hash at the end of a task's key."""


def main() -> None:
    """Measure, print and store a row for each number of duels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duels", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--slurm", action="store_true")
    options = parser.parse_args()
    where = "slurm" if options.slurm else "local"
    for number in options.duels:
        found = _run_on_slurm(number) if options.slurm else _run_here(number)
        host = describe_host()
        row = {"day": f"{datetime.now(UTC):%Y-%m-%d}", "device": host["cpu_model"], **found}
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ", flush=True)
        _store_row(f"{where}, {number}", row)


def list_matches(number: int) -> tuple[Match, ...]:
    """So many duels that differ in their budget alone."""
    limits = replace(CHEAP, rounds=2, passes=False)
    return tuple(
        Match(
            workload="noop",
            case="bare",
            arms=(STDLIB,),
            expected_s=_EXPECTED_S,
            limits=replace(limits, budget_s=1000.0 + index),
        )
        for index in range(number)
    )


def _run_here(number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="deadheat-") as folder:
        state = open_state(Path(folder) / "state")
        profile = Profile(name="growth", matches=list_matches(number), limits=CHEAP)
        plan = campaign_folder(state, CAMPAIGN) / "plan.json"
        save_plan(draft_plan(profile, site="local", campaign=CAMPAIGN), plan)
        environ = {**os.environ, "DEADHEAT_STATE": str(state.root)}
        spool = state.spool / CAMPAIGN
        found = watch([DEADHEAT, "run", str(plan)], environ, spool, number)
        return {**found, "per_duel": read_costs(state.root / "prefect" / "prefect.db", spool)}


def _run_on_slurm(number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="deadheat-") as folder:
        slurm = LocalSlurm(Path(folder, "slurm"))
        slurm.start()
        try:
            with open_cluster(Path(folder), slurm) as cluster:
                os.environ.update(cluster.environment)
                cluster.be(shard_minutes=max(1.0, number * _EXPECTED_S / 60 / 8), minutes=20)
                cluster.plan(CAMPAIGN, *list_matches(number))
                cluster.start_worker()
                command = [DEADHEAT, "run", plan_path(cluster, CAMPAIGN)]
                spool = cluster.state.spool / CAMPAIGN
                found = watch(command, cluster.environment, spool, number)
                server = Path(cluster.environment["PREFECT_HOME"], "prefect.db")
                return {**found, "per_duel": read_costs(server, spool)}
        finally:
            slurm.stop()


def watch(
    command: list[str], environ: Mapping[str, str], spool: Path, number: int
) -> dict[str, Any]:
    """Run a command until all documents lie in the spool and it has ended; its seconds, those until
    the first document, the CPU time of all its processes, and its peak memory. Raises SystemExit
    where it fails or documents lack."""
    began, first_s, peak_bytes = time.monotonic(), None, 0
    before_s = _read_cpu_s()
    process = subprocess.Popen(command, env=dict(environ), stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if first_s is None and any(spool.glob("*.json")):
            first_s = time.monotonic() - began
        peak_bytes = max(peak_bytes, read_peak_bytes(process.pid))
        time.sleep(_LOOK_S)
    wall_s = time.monotonic() - began
    there = len(list(spool.glob("*.json")))
    if process.returncode or there != number or first_s is None:
        raise SystemExit(
            f"wanted {number} documents and exit code 0, got {there} and {process.returncode}"
        )
    return {
        "duels": number,
        "wall_s": round(wall_s, 1),
        "first_document_s": round(first_s, 1),
        "ms_per_duel": round(1000 * (wall_s - first_s) / max(1, number - 1)),
        "cpu_s": round(_read_cpu_s() - before_s, 1),
        "peak_mb": round(peak_bytes / 1e6),
    }


def read_costs(database: Path, spool: Path) -> dict[str, dict[str, float]]:
    """Milliseconds per duel of each flow and task, and from when it should have started until it
    did (`waiting_ms`); those of the duel itself are from its document. A flow contains its tasks,
    and the task that measures contains the duel."""
    duels = [json.loads(path.read_text())["allocation"] for path in spool.glob("*.json")]
    began, ended = (
        sum(datetime.fromisoformat(each[key]).timestamp() for each in duels)
        for key in ("started_at", "ended_at")
    )
    costs = {"duel": {"ms": round(1000 * (ended - began) / len(duels), 1)}}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        for name, ran, waited in connection.execute(_COSTS):
            parts = {"ms": ran, "waiting_ms": waited}
            costs[name] = {
                key: round(days * _DAY_MS / len(duels), 1) for key, days in parts.items()
            }
    return costs


def _read_cpu_s() -> float:
    """The CPU time of all commands that have ended, with what they started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_peak_bytes(pid: int) -> int:
    """The peak resident memory of a process; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line[:6] == "VmHWM:"), 0)


def _store_row(name: str, row: dict[str, Any]) -> None:
    """Beside the rows that are stored already."""
    path = RESULTS / "growth.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    store_results("growth", {**stored, name: row})


if __name__ == "__main__":
    main()
