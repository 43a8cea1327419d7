"""Runs the starts of one duel: fresh processes, balanced rounds of blocks, latencies, evidence."""

from __future__ import annotations

import json
import math
import random
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell import document, stopping
from benchcore.cell.failures.kernel_log import KernelLog
from benchcore.cell.failures.status import INFRASTRUCTURE, ContenderFailedError
from benchcore.cell.measure import gpu, host
from benchcore.cell.measure.degraded import leave_out_degraded
from benchcore.cell.measure.machine_probe import MachineProbe
from benchcore.cell.processes.escaped import OwnSettings, end_escaped
from benchcore.cell.processes.launch import Launcher
from benchcore.cell.processes.process import STARTED, ContenderProcess
from benchcore.cell.proof import agreement
from benchcore.device_names import parse_device
from benchcore.protocol import DEFECT_TRACK, ContenderOrder, DuelOrder

if TYPE_CHECKING:
    from benchcore.cell.loader.server_process import LoaderProcess

# Latency samples over all starts: the fewest for steps of any length, the most within the time of
# a few blocks, which lets three starts reach a p99.
_FEWEST_LATENCIES = 50
_MOST_LATENCIES = 400
_LATENCY_BLOCKS = 5
ESCAPED = "left its group: "
_CHANGED = "its evidence was changed after it had been saved, so it proves nothing"
_MOST_PARALLEL = 2
"""Contenders that make their evidence at once: each uses all CPUs."""


class StartRunner:
    """Runs the starts of one duel, and holds the measurements so far."""

    def __init__(self, order: DuelOrder, scratch: Path, powercap: Path) -> None:
        self.order = order
        self.scratch = scratch
        self._powercap = powercap
        self.launcher = Launcher(order, scratch)
        self.probe = MachineProbe(order, scratch)
        self.contenders = {c.name: document.new_contender(c) for c in order.contenders}
        self.evidence: dict[str, dict[str, Path]] = {}
        """By contender, and by start and moment: what it computed, for the comparison."""
        self._digests: dict[Path, str | None] = {}
        """Of each file of evidence, as it came."""
        self._inspected = choose_inspected(order.limits.starts)
        self._spot_checked: set[tuple[str, int]] = set()
        """The contenders and starts whose steps were looked at between two blocks."""
        self.absent: str | None = None
        """Why the device is missing; None = it is present."""
        self._telemetry = host.TelemetrySampler(order.device)
        self._loader: LoaderProcess | None = None
        self._own = OwnSettings()
        self._escaped: dict[str, set[str]] = {}
        """By contender the processes that left its group, and the conductor's settings that it
        changed."""

    def begin(self, loader: LoaderProcess | None) -> None:
        """Start the duel's clock. `loader` serves the batches of a duel with a dataset."""
        self._loader = loader
        if loader is not None:
            self.launcher.loader_folder = loader.folder
        self._began = time.monotonic()

    def detect_device(self) -> None:
        """Find out whether the device is present, and watch its faults from now on."""
        self.absent = host.absence_reason(self.order.device)
        self._kernel_log = None
        if not self.absent and self.order.device != "cpu":
            self._kernel_log = KernelLog(gpu.pci_address(parse_device(self.order.device).ordinal))

    def drop_measurements(self, order: ContenderOrder) -> None:
        """Drop all measurements of one contender."""
        self.contenders[order.name] = document.new_contender(order)
        self.evidence.pop(order.name, None)
        self._spot_checked = {each for each in self._spot_checked if each[0] != order.name}

    def run(self, index: int, orders: Sequence[ContenderOrder]) -> None:
        """Run one start: new processes of those of these contenders that are still in the duel."""
        self.launcher.compilation = self.order.limits.compilation_of(index)
        self.launcher.seed = self.order.seed_of(index)
        running: dict[str, ContenderProcess] = {}
        try:
            for order in orders:
                if self.contenders[order.name]["status"] == "ok":
                    self._prepare(order, index, running)
            self._run_rounds(index, running)
            if self.order.dataset is None:
                self._sample_latencies(index, running)
            report_progress(event="evidence", start=index)
            self._finish_all(index, running)
        finally:
            for process in (*running.values(), self.probe):
                process.close()
            self._end_escaped()
            if self.order.limits.freeze:
                self._own.restore()  # several ended at once: the next one changed nothing

    def times(self, index: int, names: Iterable[str]) -> stopping.Times:
        """Nanoseconds per step of each contender in the undisturbed rounds of a start."""
        return {
            name: {
                block["round"]: block["elapsed_ns"] / block["steps"]
                for start in self.contenders[name]["starts"]
                if start["index"] == index
                for block in leave_out_degraded(start["blocks"])
            }
            for name in names
        }

    def describe(self, index: int, seconds: float, names: Iterable[str]) -> stopping.FinishedStart:
        """A start that has ended, as the stopping rule needs it."""
        names = list(names)
        return stopping.FinishedStart(
            times=self.times(index, names),
            seconds=seconds,
            compilations={
                name: start["compilation"]
                for name in names
                for start in self.contenders[name]["starts"]
                if start["index"] == index
            },
        )

    @contextmanager
    def _surviving(
        self, name: str, index: int, running: dict[str, ContenderProcess]
    ) -> Iterator[None]:
        """Turn one contender's failure into its status; the duel continues without it."""
        try:
            yield
        except ContenderFailedError as failed:
            if failed.status == INFRASTRUCTURE:
                raise
            contender = self.contenders[name]
            contender["status"] = contender["starts"][-1]["status"] = failed.status
            xids = self._kernel_log.read_xids() if self._kernel_log else None
            contender["failure"] = document.describe_failure(failed, index, xids)
            report_progress(event="failed", contender=name, start=index, reason=failed.reason)
            if name in running:
                running.pop(name).close()

    @contextmanager
    def _awake(self, process: ContenderProcess) -> Iterator[None]:
        """Thaw for a turn, freeze after it: a waiting contender must not use the CPU."""
        if self.order.limits.freeze:
            process.thaw()
        yield
        if self.order.limits.freeze:
            process.freeze()

    def _freeze_waiting(
        self, index: int, running: dict[str, ContenderProcess], awake: str | None
    ) -> None:
        """Freeze every contender but this one that another process (Slurm's resume) continued."""
        for name in self._list_thawed(running, awake):
            with self._surviving(name, index, running):
                running[name].freeze()

    def _list_thawed(self, running: Mapping[str, ContenderProcess], awake: str | None) -> list[str]:
        """The contenders that should be frozen and are not."""
        if not self.order.limits.freeze:
            return []
        return [name for name, each in running.items() if name != awake and not each.is_stopped]

    def _prepare(
        self, order: ContenderOrder, index: int, running: dict[str, ContenderProcess]
    ) -> None:
        start = document.new_start(index, self.launcher.compilation, self.launcher.seed)
        self.contenders[order.name]["starts"].append(start)
        with self._turn_of(order.name), self._surviving(order.name, index, running):
            if order.environment_failure:
                reason = order.environment_failure
                raise ContenderFailedError("environment", "import", reason, cause="environment")
            if self.absent:
                reason = self.absent
                raise ContenderFailedError("unsupported", "init", reason, cause="unsupported")
            if start["caches"] == "cold":
                self.launcher.empty_caches(order)
            prepared = self._launch(order, index, running)
            process = running[order.name]
            start["stages"].update(prepared.pop("stages"))
            if not prepared.pop("num_compilations"):
                start.update(caches="warm", compilation=None)
            start.update(prepared, compilations_in_blocks=0)
            self._collect_evidence(order.name, f"start {index}", process, "before")
            if self.order.limits.freeze:
                process.freeze()

    @contextmanager
    def _turn_of(self, name: str) -> Iterator[None]:
        """End whatever leaves its group meanwhile: only this one starts processes, if the others
        are frozen."""
        try:
            yield
        finally:
            left = [f"{ESCAPED}{each}" for each in self._end_escaped()]
            if self.order.limits.freeze:
                self._escaped.setdefault(name, set()).update([*left, *self._own.restore()])

    def _end_escaped(self) -> list[str]:
        return end_escaped({*STARTED, *(() if self._loader is None else (self._loader.pid,))})

    def _launch(
        self, order: ContenderOrder, index: int, running: dict[str, ContenderProcess]
    ) -> dict[str, Any]:
        running[order.name] = self.launcher.launch(order)
        return self.launcher.prepare(
            running[order.name],
            order,
            on_stage=lambda stage: report_progress(
                event="stage", contender=order.name, start=index, stage=stage
            ),
        )

    def prove_pass(self, name: str, what: str, process: ContenderProcess) -> None:
        """Collect the evidence of a process that measured `what`, such as memory: it must be of the
        same program."""
        self._collect_evidence(name, f"pass {what}", process, agreement.KNOWN)

    def _collect_evidence(self, name: str, of: str, process: ContenderProcess, when: str) -> None:
        """Collect evidence before the blocks of a start, or after them. It must be finite."""
        path = self.scratch / f"{name}.evidence-{of}-{when}.npz"
        whole = self._is_inspected(name)
        names = process.request(
            {"do": "evidence", "when": when, "path": str(path), "whole": whole},
            wanted="evidence",
            timeout_s=self.order.limits.prepare_timeout_s * _MOST_PARALLEL,
        )
        if not names:
            return
        broken = agreement.find_non_finite(path)
        if broken:
            reason = f"{broken} is not finite"
            raise ContenderFailedError("numerics", "evidence", reason, cause="not_finite")
        self.evidence.setdefault(name, {})[f"{of}, {when}"] = path
        self._digests[path] = agreement.digest_file(path)

    def refuse_changed(self) -> None:
        """Fail the contenders whose evidence was changed or removed after it came."""
        for name, files in list(self.evidence.items()):
            if any(agreement.digest_file(each) != self._digests[each] for each in files.values()):
                del self.evidence[name]
                with self._surviving(name, len(self.contenders[name]["starts"]) - 1, {}):
                    raise ContenderFailedError("numerics", "evidence", _CHANGED)

    def _run_rounds(self, index: int, running: dict[str, ContenderProcess]) -> None:
        names = [order.name for order in self.order.contenders if order.name in running]
        for number, turn in enumerate(schedule_rounds(names, f"{self.order.seed}-{index}")):
            if not self._wants_round(index, number, running):
                return
            for position, name in enumerate(turn):
                if name in running:
                    with self._turn_of(name), self._surviving(name, index, running):
                        turn_of_one = {"round": number, "position": position}
                        self._run_block(name, index, running, turn_of_one)
            if len(names) == len(self.order.contenders):  # not while one is retried alone
                self._freeze_waiting(index, running, None)
                self.probe.measure(index, number, lambda: not self._list_thawed(running, None))
            report_progress(event="round", start=index, round=number)

    def _wants_round(self, index: int, num_rounds: int, running: Iterable[str]) -> bool:
        """Whether another round follows: each has its mirror, and the order has the number of
        epochs."""
        if self.order.dataset is not None or num_rounds % 2 == 1:
            return self.order.dataset is None or num_rounds < self.order.limits.rounds
        blocks = [self.contenders[name]["starts"][-1]["blocks"] for name in running]
        return stopping.wants_round(
            self.order.limits,
            self.times(index, running),
            num_rounds,
            [sum(block["steps"] for block in each) for each in blocks],
            stopping.seconds_left(self.order.limits, index, time.monotonic() - self._began),
        )

    def _run_block(
        self, name: str, index: int, running: dict[str, ContenderProcess], turn: dict[str, int]
    ) -> None:
        """One block at its `turn` (round and position)."""
        process, start = running[name], self.contenders[name]["starts"][-1]
        own_pids = frozenset(pid for each in running.values() for pid in each.pids)
        what, message = "block", {"spot_check": self._wants_spot_check(name, index)}
        if self._loader is not None:
            own_pids |= {self._loader.pid}
            what = "epoch"
            message = {"epoch": turn["round"], "powercap": str(self._powercap)}
        self._freeze_waiting(index, running, name)
        self._telemetry.begin(own_pids)
        limit_s = self.order.limits.block_timeout_s
        with self._awake(process):
            block = process.request({"do": what, **message}, wanted=what, timeout_s=limit_s)
            thawed = self._list_thawed(running, name)
        telemetry = self._telemetry.sample(own_pids)
        if self.order.limits.freeze:
            telemetry["thawed_contenders"] = len(thawed)
        if self._loader is None:  # a block may have become longer
            start["steps_per_block"] = block["steps"]
        document.record_block(start, block, {**turn, "telemetry": telemetry})

    def _wants_spot_check(self, name: str, index: int, *, last: bool = False) -> bool:
        """Whether to look at the steps before the next block: once per inspected start, and no
        program can foresee when; at the `last` opportunity if not before."""
        is_next = self._is_inspected(name) and (name, index) not in self._spot_checked
        if is_next and (last or secrets.randbelow(2)):
            self._spot_checked.add((name, index))
            return True
        return False

    def _is_inspected(self, name: str) -> bool:
        return len(self.contenders[name]["starts"]) - 1 in self._inspected

    def _sample_latencies(self, index: int, running: dict[str, ContenderProcess]) -> None:
        """Time single steps after the rounds, one contender after another."""
        message = {
            "do": "latency",
            "fewest": math.ceil(_FEWEST_LATENCIES / self.order.limits.starts),
            "most": _MOST_LATENCIES,
            "budget_s": self.order.limits.block_ms * _LATENCY_BLOCKS / 1e3,
            "enqueued": self.order.track == DEFECT_TRACK,
        }
        for name in list(running):
            self._freeze_waiting(index, running, name)
            if name not in running:
                continue
            with (
                self._turn_of(name),
                self._surviving(name, index, running),
                self._awake(running[name]),
            ):
                found = running[name].request(
                    {**message, "spot_check": self._wants_spot_check(name, index, last=True)},
                    wanted="latency",
                    timeout_s=self.order.limits.block_timeout_s,
                )
                start = self.contenders[name]["starts"][-1]
                start["compilations_in_blocks"] += found["compilations"]
                if not self._list_thawed(running, name):  # else they are unknown
                    start.update(latency_ns=found["samples_ns"], enqueued_ns=found["enqueued_ns"])

    def _finish_all(self, index: int, running: dict[str, ContenderProcess]) -> None:
        """On a CPU several at a time, as nothing is timed any more."""

        def finish(name: str) -> None:
            with self._surviving(name, index, running):
                self._finish(name, running[name])

        num_parallel = min(_MOST_PARALLEL, host.usable_cpus()) if self.order.device == "cpu" else 1
        with ThreadPoolExecutor(num_parallel) as pool:
            for each in [pool.submit(finish, name) for name in list(running)]:
                each.result()

    def _finish(self, name: str, process: ContenderProcess) -> None:
        process.thaw()
        index = len(self.contenders[name]["starts"]) - 1
        self._collect_evidence(name, f"start {index}", process, "after")
        if len(self.contenders[name]["starts"]) == 1:  # one start's numbers are like another's
            for when in (*agreement.UNUSUAL, *agreement.IN_FLOAT32):
                self._collect_evidence(name, f"start {index}", process, when)
        account = process.request(
            {"do": "finish"}, wanted="finished", timeout_s=self.order.limits.prepare_timeout_s
        )
        if escaped := self._escaped.get(name):
            account["effective"]["manifest"]["processes"] = "; ".join(sorted(escaped))
        document.add_effective(self.contenders[name]["effective"], account["effective"])


def choose_inspected(fewest: int) -> frozenset[int]:
    """The starts of a contender whose steps are inspected whole: the first one, and one of the
    others that no program can foresee. Each takes seconds."""
    return frozenset({0, *([1 + secrets.randbelow(fewest - 1)] if fewest > 1 else [])})


def schedule_rounds(names: Sequence[str], seed: str) -> Iterator[list[str]]:
    """The order of contenders in each round, without end: a seeded shuffle and then its mirror (AB
    BA), so that positions balance after every second round."""
    shuffler = random.Random(seed)
    while True:
        turn = list(names)
        shuffler.shuffle(turn)
        yield turn
        yield turn[::-1]


def report_progress(**event: object) -> None:
    """Write a JSON line to standard output, for the process that started us."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
