"""Runs one duel: launches its starts, deals out balanced rounds, and collects the blocks."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchcore.cell import document, energy, equivalence, gpu, hlo_dump, host, ladder, stopping
from benchcore.cell.arm_environ import xla_flags_of
from benchcore.cell.causes import KernelLog
from benchcore.cell.degraded import leave_out_degraded
from benchcore.cell.epochs import keep_block, seen_tolerances
from benchcore.cell.launch import Launcher
from benchcore.cell.machine_probe import MachineProbe
from benchcore.cell.passes import ResourcePasses
from benchcore.cell.process import INFRASTRUCTURE, ContenderFailedError, ContenderProcess
from benchcore.cell.supply import Supply
from benchcore.cell.turns import deal_turns
from benchcore.protocol import DEFECT_TRACK, ContenderOrder, DuelOrder, StoppedBy, parse_device

# Of all starts together, as many as the seed's rule asks for, whatever a step takes; within the
# time of some blocks, enough in three starts for a p99.
_FEWEST_LATENCIES = 50
_MOST_LATENCIES = 400
_LATENCY_BLOCKS = 5


class Conductor:
    """One duel in this allocation. Imports neither framework."""

    def __init__(
        self, order: DuelOrder, scratch: Path, *, powercap: Path = energy.POWERCAP
    ) -> None:
        self._order = order
        self._scratch = scratch
        self._powercap = powercap
        self._launcher = Launcher(order, scratch)
        self._spec = importlib.import_module(f"benchcore.workloads.{order.workload}.spec")
        self._telemetry = host.TelemetrySampler(order.device)
        self._contenders = {c.name: document.new_contender(c) for c in order.contenders}
        self._evidence: dict[str, Path] = {}
        self._absent: str | None = None
        self._probe = MachineProbe(order, scratch)
        self._supply: Supply | None = None
        self._crashed: dict[str, dict[str, Any]] = {}
        self._rungs: dict[str, Iterator[ladder.Rung]] = {}

    def run(self) -> dict[str, Any]:
        """The whole duel; returns its result document."""
        order = self._order
        started_at = document.utc_now()
        self._absent = host.why_absent(order.device)
        self._kernel_log = self._open_kernel_log()
        stopped_by = self._run_starts() if order.dataset is None else self._run_supplied()
        if order.passes and order.dataset is None:
            passes = ResourcePasses(order, self._launcher.launch_for_pass, powercap=self._powercap)
            passes.run(self._contenders)
        self._note_workarounds()
        return document.assemble(
            order,
            duel={**document.describe_duel(order, self._spec), "stopped_by": stopped_by},
            allocation=self._describe_allocation(started_at),
            contenders=list(self._contenders.values()),
            equivalence=self._compare_evidence(),
            probe=self._probe.describe(),
        )

    def _run_supplied(self) -> StoppedBy:
        """Starts that train on what one producer decodes; passes are of single steps."""
        with closing(Supply(self._order, self._scratch)) as self._supply:
            self._launcher.feed_from = self._supply.folder
            return self._run_starts()

    def _run_starts(self) -> StoppedBy:
        """Starts until one of the duel's limits; which one it was."""
        self._began = time.monotonic()
        start_s: list[float] = []
        while True:
            before = time.monotonic()
            self._run_start(len(start_s), self._order.contenders)
            self._climb_ladders(len(start_s))
            start_s.append(time.monotonic() - before)
            left = [name for name, each in self._contenders.items() if each["status"] == "ok"]
            starts = [self._times(index, left) for index in range(len(start_s))]
            stopped_by = stopping.why_stop(self._order, left, starts, start_s)
            if stopped_by:
                return stopped_by

    def _times(self, index: int, names: Iterable[str]) -> stopping.Times:
        """What each contender took in those rounds of a start that may count."""
        return {
            name: {
                block["round"]: block["elapsed_ns"] / block["steps"]
                for start in self._contenders[name]["starts"]
                if start["index"] == index
                for block in leave_out_degraded(start["blocks"])
            }
            for name in names
        }

    def _open_kernel_log(self) -> KernelLog | None:
        if self._absent or self._order.device == "cpu":
            return None
        return KernelLog(gpu.pci_address(parse_device(self._order.device).ordinal))

    def _describe_allocation(self, started_at: str) -> dict[str, Any]:
        return {
            **document.describe_allocation(self._order, started_at),
            "device": host.describe_device(self._order.device),
            "gpus": [] if self._absent or self._order.device == "cpu" else gpu.list_gpus(),
            "host": host.describe_host(),
        }

    def _run_start(self, index: int, orders: Sequence[ContenderOrder]) -> None:
        """Fresh processes of those of these contenders that are still in the duel."""
        running: dict[str, ContenderProcess] = {}
        try:
            for order in orders:
                if self._contenders[order.name]["status"] == "ok":
                    self._prepare(order, index, running)
            self._play_rounds(index, running)
            if self._order.dataset is None:
                self._sample_latencies(index, running)
            for name in list(running):
                with self._surviving(name, index, running):
                    self._finish(name, running[name])
        finally:
            for process in (*running.values(), self._probe):
                process.close()

    @contextmanager
    def _surviving(
        self, name: str, index: int, running: dict[str, ContenderProcess]
    ) -> Iterator[None]:
        """What one contender can't survive takes it out of the duel, and no one else."""
        try:
            yield
        except ContenderFailedError as failed:
            if failed.status == INFRASTRUCTURE:
                raise
            contender = self._contenders[name]
            contender["status"] = contender["starts"][-1]["status"] = failed.status
            xids = self._kernel_log.read_xids() if self._kernel_log else None
            contender["failure"] = document.describe_failure(failed, index, xids)
            _tell(event="failed", contender=name, start=index, reason=failed.reason)
            if name in running:
                running.pop(name).close()

    @contextmanager
    def _awake(self, process: ContenderProcess) -> Iterator[None]:
        """Thaw for a turn, freeze after it: a contender that waits may not even spin."""
        if self._order.freeze:
            process.thaw()
        yield
        if self._order.freeze:
            process.freeze()

    def _prepare(
        self, order: ContenderOrder, index: int, running: dict[str, ContenderProcess]
    ) -> None:
        start = document.new_start(index)
        self._contenders[order.name]["starts"].append(start)
        with self._surviving(order.name, index, running):
            if order.environment_failure:
                reason = order.environment_failure
                raise ContenderFailedError("environment", "import", reason, cause="environment")
            if self._absent:
                reason = self._absent
                raise ContenderFailedError("unsupported", "init", reason, cause="unsupported")
            if index == 0 and self._order.passes and order.settings.get("compile") != "none":
                self._compile_cold(order, running)
            prepared = self._start(order, index, running)
            process = running[order.name]
            start["stages"].update(prepared.pop("stages"))
            start.update(prepared, compilations_in_blocks=0)
            self._collect_evidence(order.name, index, process)
            if self._order.freeze:
                process.freeze()

    def _compile_cold(self, order: ContenderOrder, running: dict[str, ContenderProcess]) -> None:
        """Compilation with empty caches, in a process that is never timed: it fills the caches of
        all that are, which so begin alike."""
        prepared = self._start(order, 0, running, purpose="pass")
        self._contenders[order.name]["cold"] = {
            "stages": dict.fromkeys(document.STAGES) | prepared["stages"],
            "cache_hits": prepared["cache_hits"],
        }
        running.pop(order.name).close()

    def _start(
        self,
        order: ContenderOrder,
        index: int,
        running: dict[str, ContenderProcess],
        purpose: str = "timing",
    ) -> dict[str, Any]:
        running[order.name] = self._launcher.launch(order)
        return self._launcher.prepare(
            running[order.name],
            order,
            purpose=purpose,
            on_stage=lambda stage: _tell(
                event="stage", contender=order.name, start=index, stage=stage
            ),
        )

    def _climb_ladders(self, index: int) -> None:
        """Who crashed as ladders are for begins its duel anew, with one cure after the other."""
        for order in self._order.contenders:
            contender = self._contenders[order.name]
            failure = contender["failure"]
            if failure and ladder.climbs(order.framework, contender["status"], failure["cause"]):
                self._climb(order, index)

    def _climb(self, order: ContenderOrder, index: int) -> None:
        """Play every start so far again, alone, until a rung holds through them all.

        What was measured without that rung's cure is dropped: no two rungs are ever pooled. A
        crash that nothing cures leaves what was measured before it.
        """
        name = order.name
        clean = self._crashed.setdefault(name, self._contenders[name])
        record = clean["ladder"] = clean["ladder"] or self._begin_ladder(order, clean)
        if name in self._launcher.cures:  # it has held no longer
            record["attempts"][-1] = self._describe_attempt(name, self._launcher.cures[name])
        for rung in self._rungs_left(order):
            if rung == ladder.RUNGS[-1]:
                record["highest"] = self._probe_highest(order)
            _tell(event="rung", contender=name, start=index, rung=rung.number)
            self._launcher.cures[name] = rung
            self._contenders[name] = document.new_contender(order)
            self._evidence.pop(name, None)
            for again in range(index + 1):
                self._run_start(again, (order,))
            record["attempts"].append(self._describe_attempt(name, rung))
            if self._contenders[name]["status"] == "ok":
                return
        self._launcher.cures.pop(name, None)
        self._evidence.pop(name, None)
        self._contenders[name] = clean

    def _begin_ladder(self, order: ContenderOrder, crashed: dict[str, Any]) -> dict[str, Any]:
        """Nothing tried yet, but for the HLO of the crash, which is kept before anything is."""
        hlo = None
        if hlo_dump.can_tell(crashed["failure"]["stage"]):
            hlo = hlo_dump.keep_hlo(
                lambda rung: self._launcher.live_once(order, rung),
                self._scratch / "hlo" / order.name,
                self._order.device,
                xla_flags_of(order.settings, self._order.device),
            )
        return {"cure": None, "attempts": [], "highest": None, "hlo": hlo}

    def _describe_attempt(self, name: str, rung: ladder.Rung) -> dict[str, Any]:
        contender = self._contenders[name]
        return ladder.describe_attempt(contender["status"], contender["failure"], rung)

    def _probe_highest(self, order: ContenderOrder) -> dict[str, Any] | None:
        """Whether it lives with JAX's precision `highest`: advice, of which no number is kept."""
        if not ladder.is_another_case(self._spec.CASES[self._order.case].precision):
            return None
        failed = self._launcher.live_once(order, ladder.CLEAN, ladder.HIGHEST)
        if failed is None:
            return ladder.describe_attempt("ok", None)
        failure = document.describe_failure(failed, 0, None)
        return ladder.describe_attempt(failed.status, failure)

    def _rungs_left(self, order: ContenderOrder) -> Iterator[ladder.Rung]:
        """The rungs not tried yet: who crashes again further on goes on climbing."""
        environ = self._launcher.environ(order)
        rungs = ladder.usable_rungs(
            self._order.device,
            lambda flag: ladder.knows_flag(order.environment.python, environ, flag),
        )
        return self._rungs.setdefault(order.name, rungs)

    def _note_workarounds(self) -> None:
        """What needed a cure is no clean result: its status keeps it out of every ratio."""
        for name, rung in self._launcher.cures.items():
            contender, clean = self._contenders[name], self._crashed[name]
            held = contender["status"] == "ok"
            contender["ladder"] = {**clean["ladder"], "cure": rung.number if held else None}
            if held:
                for each in (contender, *contender["starts"]):
                    each["status"] = "workaround"
                contender["failure"] = {
                    **clean["failure"],
                    "reason": f"{rung.describe()} helped after: {clean['failure']['reason']}; "
                    f"without it, {len(clean['starts'])} starts begun and dropped",
                }

    def _collect_evidence(self, name: str, index: int, process: ContenderProcess) -> None:
        """Of every start it must be finite; that of the first one is compared."""
        path = self._scratch / f"{name}.evidence-{index}.npz"
        names = process.ask(
            {"do": "evidence", "path": str(path)},
            wanted="evidence",
            timeout_s=self._order.prepare_timeout_s,
        )
        broken = equivalence.find_non_finite(path) if names else None
        if broken:
            reason = f"{broken} is not finite"
            raise ContenderFailedError("numerics", "evidence", reason, cause="not_finite")
        if names and index == 0:
            self._evidence[name] = path
        else:
            path.unlink(missing_ok=True)

    def _compare_evidence(self) -> list[dict[str, Any]]:
        """Of the attempts that are kept: who needed a cure has proved itself with it."""
        paths = {name: self._evidence[name] for name in self._contenders if name in self._evidence}
        case = document.find_case(self._order, self._spec)
        tolerances = self._spec.tolerances(case)
        if self._order.dataset is not None:
            tolerances = {**tolerances, **seen_tolerances(case.precision, tolerances)}
        return equivalence.compare_all(paths, tolerances) if paths else []

    def _play_rounds(self, index: int, running: dict[str, ContenderProcess]) -> None:
        names = [order.name for order in self._order.contenders if order.name in running]
        for number, turn in enumerate(deal_turns(names, f"{self._order.seed}-{index}")):
            if not self._wants_round(index, number, running):
                return
            for position, name in enumerate(turn):
                if name in running:
                    with self._surviving(name, index, running):
                        self._play_block(name, running, number, position)
            if len(names) == len(self._order.contenders):  # not of who climbs a ladder alone
                self._probe.take(index, number)
            _tell(event="round", start=index, round=number)

    def _wants_round(self, index: int, played: int, running: Iterable[str]) -> bool:
        """A round comes with its mirror; epochs are as many as was asked for."""
        if self._order.dataset is not None or played % 2 == 1:
            return self._order.dataset is None or played < self._order.rounds
        blocks = [self._contenders[name]["starts"][-1]["blocks"] for name in running]
        return stopping.wants_round(
            self._order,
            self._times(index, running),
            played,
            [sum(block["steps"] for block in each) for each in blocks],
            stopping.seconds_left(self._order, index, time.monotonic() - self._began),
        )

    def _play_block(
        self, name: str, running: dict[str, ContenderProcess], number: int, position: int
    ) -> None:
        process, start = running[name], self._contenders[name]["starts"][-1]
        own_pids = frozenset(each.pid for each in running.values())
        what, message = "block", {}
        if self._supply is not None:
            own_pids |= {self._supply.pid}
            what, message = "epoch", {"epoch": number, "powercap": str(self._powercap)}
        self._telemetry.begin(own_pids)
        limit_s = self._order.block_timeout_s
        with self._awake(process):
            block = process.ask({"do": what, **message}, wanted=what, timeout_s=limit_s)
        turn = {"round": number, "position": position}
        keep_block(start, block, {**turn, "telemetry": self._telemetry.sample(own_pids)})

    def _sample_latencies(self, index: int, running: dict[str, ContenderProcess]) -> None:
        """After the rounds, each in turn and alone: steps that are waited for one by one."""
        message = {
            "do": "latency",
            "fewest": math.ceil(_FEWEST_LATENCIES / self._order.starts),
            "most": _MOST_LATENCIES,
            "budget_s": self._order.block_ms * _LATENCY_BLOCKS / 1e3,
            "enqueued": self._order.track == DEFECT_TRACK,
        }
        for name in list(running):
            with self._surviving(name, index, running), self._awake(running[name]):
                found = running[name].ask(
                    message, wanted="latency", timeout_s=self._order.block_timeout_s
                )
                start = self._contenders[name]["starts"][-1]
                start["latency_ns"] = found["samples_ns"]
                start["enqueued_ns"] = found["enqueued_ns"]
                start["compilations_in_blocks"] += found["compilations"]

    def _finish(self, name: str, process: ContenderProcess) -> None:
        process.thaw()
        account = process.ask(
            {"do": "finish"}, wanted="finished", timeout_s=self._order.block_timeout_s
        )
        self._contenders[name]["effective"] = account["effective"]


def _tell(**event: object) -> None:
    """One line of progress to whoever started us."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
