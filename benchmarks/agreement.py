"""Whether others' timers find the time of a step that our blocks and latencies find."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import stats

from benchcore.cell.measure.host import usable_cpus
from benchcore.environments.build import EnvironmentRecord, provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.uv_command import run_uv_or_cached
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import write_json
from benchcore.state import State

WITHIN = math.log1p(0.01)
WORKER = Path(__file__).with_name("agreement_worker.py")
TURNS = 20


@dataclass(frozen=True, kw_only=True)
class Function:
    """What is timed: nothing, microseconds, tens of them, milliseconds, or tens of them."""

    framework: str
    workload: str
    case: str
    methods: tuple[str, ...] = ()
    """What times it; empty = our block and latency, and every peer of the framework."""

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.framework} {self.workload} {self.case}"


FUNCTIONS = tuple(
    Function(framework=framework, workload=workload, case=case)
    for framework in ("torch", "jax")
    for workload, case in (
        ("noop", "bare"),
        ("ops", "tiny_op"),
        ("mlp", "tiny_infer"),
        ("mlp", "infer_b128"),
        ("resnet50", "tiny_infer"),
    )
)
C_LOOP = ("c_loop", "block")
LOOP = tuple(
    replace(each, methods=("block", "c_loop")) for each in FUNCTIONS if each.workload == "noop"
)
"""The empty steps in processes without other timers."""
PEERS = {
    "torch": (("torch_timer", "block"), ("pyperf", "block"), ("timm_loop", "latency"), C_LOOP),
    "jax": (("pyperf", "block"), ("timm_loop", "latency"), C_LOOP),
}
"""What each peer's time is compared with. timm's loop waits for each step and reads its clock
around it, as our latency does; a block does neither, and is another quantity."""
OVERHEAD = "our loop's cost"
"""The verdict on a step that does nothing."""


def measure_turns(
    function: Function, state: State, folder: Path, turns: int, advance: Callable[[], None]
) -> list[dict[str, float]]:
    """Method -> nanoseconds per step, of each turn; from the folder, if they were kept before."""
    kept = folder / f"{function.title.replace(' ', '-')}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    release = resolve(parse_request(function.framework), find_interpreters())
    record = provision(release, state, accelerator="cpu", report=lambda text: None)
    folders = [take_snapshot(state.snapshots)]
    if not function.methods:
        folders.append(_install_pyperf(record, folder))
    job = folder / "job.json"
    write_json(job, {"turns": turns, "order": _order(function), "methods": function.methods})
    path = os.pathsep.join(map(str, folders))
    found = []
    with subprocess.Popen(
        [record.python, "-P", "-s", str(WORKER), str(job)],
        env=_environ(path),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(json.loads(line))
            advance()
    if process.returncode or len(found) != turns:
        raise SystemExit(f"{function.title}: wanted {turns} turns, got {len(found)}; see above")
    write_json(kept, found)
    return found


def _install_pyperf(record: EnvironmentRecord, folder: Path) -> Path:
    peers = folder / f"peers-{record.key}"
    if not peers.exists():
        target = ["--python", record.python, "--target", str(peers)]
        answer = run_uv_or_cached(["pip", "install", *target, "pyperf"])
        if answer.failure:
            raise SystemExit(f"wanted pyperf beside {record.name}, got: {answer.message}")
    return peers


def _order(function: Function) -> dict[str, Any]:
    """The first message that the conductor sends a contender."""
    return {
        "purpose": "timing",
        "framework": function.framework,
        "workload": function.workload,
        "case": function.case,
        "precision": None,
        "dataset": None,
        "loader_folder": None,
        "checkpoint": None,
        "seed": 1,
        "device": "cpu",
        "settings": {"compile": "jit" if function.framework == "jax" else "none"},
        "threads": usable_cpus(),
        "block_ms": 100.0,
        "warm_up_limit_s": 3.0,
    }


def _environ(path: str) -> dict[str, str]:
    """As the conductor has it, but for the folders that modules come from."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": path,
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "OMP_NUM_THREADS": str(usable_cpus()),
        "JAX_PLATFORMS": "cpu",
    }


def compare(function: Function, turns: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """A row per peer: the median over the turns of each time, and of the log ratio of both in a
    turn. Each has a 95 % interval by the ranks of its order statistics, which assumes no
    distribution. Turns share the machine's state, so the ratio's interval is narrower."""
    rows = []
    does_nothing = function.workload == "noop"
    for peer, ours in (C_LOOP,) if does_nothing else PEERS[function.framework]:
        logs = [math.log(turn[peer] / turn[ours]) for turn in turns]
        low, high = median_interval(logs)
        middle = statistics.median(logs)
        own = [median_interval([turn[each] for turn in turns]) for each in (ours, peer)]
        rows.append(
            {
                "function": function.title,
                "peer": peer,
                "ours": ours,
                "ours_ns": statistics.median(turn[ours] for turn in turns),
                "ours_interval_ns": own[0],
                "peer_ns": statistics.median(turn[peer] for turn in turns),
                "peer_interval_ns": own[1],
                "log_ratio": middle,
                "low": low,
                "high": high,
                "verdict": OVERHEAD if does_nothing else judge(middle, (low, high), *own),
            }
        )
    return rows


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % at least, for the median of six samples or more."""
    rank = int(stats.binom.ppf(0.025, len(samples), 0.5))
    ordered = sorted(samples)
    return ordered[max(0, rank - 1)], ordered[min(len(ordered) - 1, len(ordered) - rank)]


def judge(
    middle: float,
    paired: tuple[float, float],
    ours: tuple[float, float],
    peer: tuple[float, float],
) -> str:
    """`agrees` within 1 %, or as far as the intervals of both times and of their ratio resolve. The
    ratio's is narrower: the row notes where it alone excludes zero."""
    if abs(middle) <= WITHIN:
        return "agrees within 1 %"
    if ours[0] > peer[1] or peer[0] > ours[1]:
        return "DIFFERS"
    return "intervals overlap" if paired[0] <= 0.0 <= paired[1] else "overlap, but pairs differ"


def show(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| function | ours | time | peer | its time | difference (95 %) | verdict |",
        "|---" * 7,
    ]
    lines[1] += "|"
    for row in rows:
        low, middle, high = (math.expm1(row[key]) for key in ("low", "log_ratio", "high"))
        ours, theirs = (_format_time(row, side) for side in ("ours", "peer"))
        lines.append(
            f"| {row['function']} | {row['ours']} | {ours} | {row['peer']} | {theirs} | "
            f"{middle:+.2%} ({low:+.2%} to {high:+.2%}) | {row['verdict']} |"
        )
    return "\n".join(lines)


def _format_time(row: dict[str, Any], side: str) -> str:
    times = (row[f"{side}_ns"], *row[f"{side}_interval_ns"])
    middle, low, high = (f"{float(f'{time_ns / 1e3:.4g}'):,g}" for time_ns in times)
    return f"{middle} µs ({low} to {high})"
