"""Duels through the real conductor of work that can be made longer by a share: by default of bare
Python."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from scipy import stats

from benchcore.cell.measure.degraded import find_degraded
from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning import matrix
from benchcore.planning.profiles import Arm, Match, Profile
from benchcore.planning.snapshot import list_inside_files, take_snapshot
from benchcore.protocol import DuelLimits, Framework
from benchcore.running.duel_process import run_duel
from benchcore.state import State
from benchcore.store.incoming.documents import read_document
from benchcore.verdict.duel.ratios import ContenderTimes, Ratio, judge_duel

Document = dict[str, Any]
_WORKLOAD = "short_work"
_SPEC = "from benchcore.workloads.noop.spec import *"
_STEP = '''
import hashlib
from benchcore.program import Program

def build(case, arrays, settings):
    """SHA-256 of so many bytes: its time is in proportion to their number."""
    content = bytes(round(100_000 * float(settings["share"])))
    return Program(step=lambda inputs: hashlib.sha256(content).digest())
'''


@dataclass(frozen=True, kw_only=True)
class Work:
    """What both sides do: a module whose `build` reads the setting `share`, the amount of work."""

    framework: Framework
    module: str
    limits: DuelLimits
    templates: Path | None = None
    """Of environments with more packages than the framework needs."""


DIGEST = Work(
    framework="stdlib",
    module=_STEP,
    limits=DuelLimits(rounds=6, block_ms=2.0, warm_up_limit_s=0.05),
)


class ShortDuels:
    """Two contenders that do the same work, or the second one more by a share.

    A duel that was measured before in the same campaign is not repeated.
    """

    def __init__(self, state: State, campaign: str, work: Work = DIGEST) -> None:
        self._state = state
        self._campaign = campaign
        self._work = work
        release = resolve(parse_request(work.framework), find_interpreters())
        self._releases = {work.framework: release}
        self.record = provision(
            release,
            state,
            accelerator="cpu",
            report=lambda text: None,
            templates=work.templates,
        )
        self._snapshot = _add_workload(
            take_snapshot(state.snapshots), state.root / "measuring" / campaign, work
        )

    def play(self, number: int, *, shift: float, **limits: Any) -> Document:
        """One duel with the seed `number`; `limits` are the order's."""
        name = self._work.framework
        arm = Arm(name=name, request=name, settings={"compile": "none"})
        match = Match(workload="noop", case="bare", arms=(arm, arm), expected_s=1)
        profile = Profile(name="short", matches=(match,), seed=number, limits=self._work.limits)
        campaign = f"{self._campaign}-{round(shift * 1000)}"
        plan = matrix.make_plan(profile, self._releases, campaign=campaign, site="local")
        order = matrix.make_order(
            plan, plan.duels[0], {name: self.record}, harness_version="0", snapshot="0" * 64
        )
        a, b = order.contenders
        order = dataclasses.replace(
            order,
            workload=_WORKLOAD,
            contenders=(_working(a, 1.0), _working(b, 1.0 + shift)),
            limits=dataclasses.replace(order.limits, **limits),
        )
        return read_document(run_duel(order, self._state, self._snapshot, lambda event: None))


def play_abreast(plays: Sequence[Callable[[], Document | None]]) -> list[Document | None]:
    """What each play came to, in their order: as many at once as there are CPUs, each on one CPU.

    A duel of one thread leaves the other CPUs idle; its processes inherit the CPU of the thread
    that starts them, and count as foreign only what runs there.
    """
    cores: SimpleQueue[int] = SimpleQueue()
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        cores.put(cpu)
    pool = ThreadPoolExecutor(len(cpus), initializer=lambda: os.sched_setaffinity(0, {cores.get()}))
    try:
        return [future.result() for future in [pool.submit(play) for play in plays]]
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure, or Ctrl-C, none begins


def _working(contender: Any, share: float) -> Any:
    return dataclasses.replace(contender, settings={"compile": "none", "share": f"{share:g}"})


def _add_workload(snapshot: Path, folder: Path, work: Work) -> Path:
    """A snapshot is read-only: a copy of it that has one workload more."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in list_inside_files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(snapshot / file, folder / file)
    workload = folder / "benchcore" / "workloads" / _WORKLOAD
    workload.mkdir()
    for name, text in (("__init__", ""), ("spec", _SPEC), (f"in_{work.framework}", work.module)):
        (workload / f"{name}.py").write_text(text)
    return folder


def judge(document: Document, starts: Sequence[int] | None = None) -> Ratio:
    """The verdict over some of a duel's starts, or all. It needs a framework, which SHA-256 lacks,
    so both sides count as JAX."""
    sides = [
        ContenderTimes(
            name=contender["name"],
            arm="stdlib",
            framework="jax",
            version="1",
            role="newest",
            starts={
                start["index"]: {b["round"]: b["elapsed_ns"] / b["steps"] for b in start["blocks"]}
                for start in _chosen(contender, starts)
            },
            degraded={
                start["index"]: find_degraded(start["blocks"])
                for start in _chosen(contender, starts)
            },
        )
        for contender in document["contenders"]
    ]
    (ratio,) = judge_duel(sides)
    return ratio


def _chosen(contender: Document, starts: Sequence[int] | None) -> Iterator[Document]:
    return (each for each in contender["starts"] if starts is None or each["index"] in starts)


def misses_zero(ratio: Ratio, confidence: float) -> bool:
    """Whether the interval of Student's t over the starts leaves out no difference."""
    samples = np.array(ratio.start_log_ratios)
    if len(samples) < 2:
        return False
    half = stats.t.ppf((1 + confidence) / 2, len(samples) - 1) * stats.sem(samples)
    return bool(abs(samples.mean()) > half)


def rate(hits: Sequence[bool]) -> dict[str, Any]:
    """A share with its exact binomial (Clopper-Pearson) 95 % interval."""
    interval = stats.binomtest(sum(hits), len(hits)).proportion_ci(0.95)
    return {
        "duels": len(hits),
        "share": sum(hits) / len(hits),
        "low": float(interval.low),
        "high": float(interval.high),
    }


def count_alarms(ratios: Sequence[Ratio]) -> list[dict[str, Any]]:
    """How often duels of a contender against itself find a difference."""
    hits = {
        "called different": [each.verdict == "different" for each in ratios],
        "95 % interval misses 0": [misses_zero(each, 0.95) for each in ratios],
        "99 % interval misses 0": [misses_zero(each, 0.99) for each in ratios],
    }
    return [{"what": what, **rate(each)} for what, each in hits.items()]


def find_power(documents: Sequence[Document], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """How often so many starts in a row find, with the right sign, that unequal duels differ.

    `found` = the 95 % interval leaves out no difference; `different` = the verdict, which calls
    `same` what lies within its bound of 2 %. A duel gives as many groups as fit into its starts.
    """
    rows = []
    for size in sizes:
        ratios = [
            judge(document, group)
            for document in documents
            for group in _groups(len(document["contenders"][0]["starts"]), size)
        ]
        slower = [(each.log_ratio or 0.0) > 0 for each in ratios]
        found = [misses_zero(r, 0.95) and s for r, s in zip(ratios, slower, strict=True)]
        called = [r.verdict == "different" and s for r, s in zip(ratios, slower, strict=True)]
        seconds = float(np.median([seconds_a_start(each) for each in documents])) * size
        rows.append(
            {
                "starts": size,
                "seconds": seconds,
                **{f"found_{key}": value for key, value in rate(found).items()},
                "different_share": sum(called) / len(called),
            }
        )
    return rows


def _groups(num_starts: int, size: int) -> list[range]:
    return [range(first, first + size) for first in range(0, num_starts - size + 1, size)]


def measured_shift(documents: Sequence[Document]) -> float:
    """What the injected work really adds, by the median of all starts of all duels."""
    logs = [log for each in documents for log in judge(each).start_log_ratios]
    return math.expm1(float(np.median(logs)))


def seconds_a_start(document: Document) -> float:
    """A duel's whole time per start, its passes included."""
    allocation = document["allocation"]
    began, ended = (np.datetime64(allocation[f"{end}ed_at"][:23]) for end in ("start", "end"))
    num_starts = len(document["contenders"][0]["starts"])
    return float((ended - began) / np.timedelta64(1, "s")) / num_starts
