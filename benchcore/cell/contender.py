"""One contender's process: prepares its program in stages, then answers messages."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.building import bind_program, digest, find_case, make_start, put_weights
from benchcore.cell.failures.exceptions import describe_exception
from benchcore.cell.in_float32 import InFloat32
from benchcore.cell.inspection import Inspection
from benchcore.cell.measure import energy, memory, timing
from benchcore.cell.measure.metric_probes import measure_new_shapes, probe_metrics, time_in_numpy
from benchcore.cell.processes.channel import Channel, ChannelClosedError
from benchcore.cell.proof import agreement
from benchcore.cell.proof.agreement import IN_FLOAT32, KNOWN, UNUSUAL
from benchcore.cell.proof.canary import run_canary
from benchcore.cell.proof.watching.switches import (
    SwitchLog,
    list_process_switches,
    watch_audit_hooks,
)
from benchcore.cell.runtimes.runtime import ALONE, Runtime, load_runtime
from benchcore.program import Arrays
from benchcore.workloads.contract import import_spec

if TYPE_CHECKING:  # imported where an order needs it, before its program could change it
    from benchcore.cell.loader.epochs import Trainer
    from benchcore.cell.processes.group import Group
    from benchcore.protocol import DataMode

_REWARM_NS = 20_000_000
_PROFILED_NS = 150_000_000
_FEWEST_PROFILED, _MOST_PROFILED = 2, 30


class ContenderServer:
    """The state of one contender between two messages."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stage = "import"
        self._seconds: dict[str, float | None] = {}
        self._steps_per_block = 1
        self._group_size = 1
        self._data_path: str | None = None
        self._group: Group | None = None
        self._inspect_batch: Callable[[], Mapping[str, Any]] = dict
        self._learn_first: Callable[[], object] | None = None

    def serve(self) -> None:
        """Answer messages until the conductor closes the pipe, or report a failure and end."""
        try:
            self.prepare(self._channel.receive())
            while self.answer(self._channel.receive()):
                pass
        except ChannelClosedError:
            return
        except BaseException as error:  # noqa: BLE001 - the one place where a crash becomes a status
            self._channel.send({"failed": describe_exception(error, self._stage)})
        finally:
            if self._group is not None:
                self._group.end()

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self._stage = stage
        self._channel.send({"stage": stage})
        began, compiled = time.perf_counter(), self._compiled_s()
        yield
        took = time.perf_counter() - began - (self._compiled_s() - compiled)
        self._seconds[stage] = max(0.0, took)  # two clocks differ by microseconds

    def _compiled_s(self) -> float:
        """Seconds of trace, lower and compile so far, to subtract from the stage that contains
        them."""
        return sum(seconds or 0.0 for seconds in self.runtime.compile_seconds().values())

    def prepare(self, order: Mapping[str, Any]) -> None:
        """Everything before the first message. An order's `purpose` is `timing`, `pass` (without
        warm-up) or `proof` (without a program: each message builds its own)."""
        self._order = order
        self.program: BoundProgram
        self.runtime: Runtime = load_runtime(order["framework"])
        with self._timed("import"):
            self.runtime.import_framework()
        watch_audit_hooks()
        self._switches = SwitchLog(lambda: {**list_process_switches(), **self.runtime.switches()})
        self._spec = import_spec(order["workload"])
        self._switches.compare()
        if order["purpose"] == "proof":
            from benchcore.cell.proof.case import save_proof

            self._save_proof = save_proof
            self._initialise(order["precision"])
            self._channel.send({"prepared": {"canary": self._canary}})
        else:
            self._prepare_program(find_case(self._spec, order))

    def _initialise(self, precision: str, devices: int = 1) -> None:
        """Initialise the devices in a precision, and check the first one with the canary."""
        self._device, self._num_devices = self._order["device"], devices
        with self._timed("init"):
            if (size := self.runtime.count_processes(devices, self._order["settings"])) > 1:
                from benchcore.cell.processes.group import Group

                self._group = Group(self._order, size)
                self._channel.send({"stage": "init", "members": self._group.pids})
            self.runtime.initialise(
                device=self._device,
                precision=precision,
                threads=self._order["threads"],
                settings=self._order["settings"],
                devices=devices,
                place=self._group.place(0) if self._group else ALONE,
            )
        self._stage = "canary"
        self.runtime.try_compiler()
        self._canary = run_canary(self.runtime.canary, precision, large=self._device != "cpu")

    def _prepare_program(self, case: Any) -> None:
        order = self._order
        self._initialise(case.precision, getattr(case, "devices", 1))
        # The program's counters start here, without what the canary compiled and allocated.
        before = self.runtime.compile_seconds()
        counts = self._count_compilations()
        self._baseline_bytes = memory.take_baseline(self._device, self._group)
        arrays = put_weights(self._make_arrays(case), order["checkpoint"])
        self._switches.restart()
        with self._timed("build"):
            lead = self._group.lead if self._group else lambda program: program
            self.program = bind_program(order, case, arrays, lead)
        self._inspection = Inspection(
            self.runtime,
            self.program,
            self._run_steps,
            alone=self._group is None,
            in_float32=InFloat32(order, case, arrays, self.runtime),
            report_alive=self._report_alive,
        )
        self._switches.add(self._inspection.list_switches)
        with self._timed("first_run"):
            self._run_steps(1)
        outputs = self.program.step()
        self.runtime.synchronise(outputs)
        self._group_size = timing.choose_group_size(outputs)
        del outputs
        warm_up = None
        if order["purpose"] == "timing":
            with self._timed("warm_up"):
                warm_up = self._warm_up()
        self._stage = "evidence"
        stages = {**self._seconds, **_since(before, self.runtime.compile_seconds())}
        prepared = {
            "stages": stages,
            **_since(counts, self._count_compilations()),
            "warm_up": warm_up,
            "steps_per_block": self._steps_per_block,
            "clock_resolution_ns": timing.clock_resolution_ns(),
            "inputs_sha256": digest(arrays),
            "canary": self._canary,
        }
        self._channel.send({"prepared": prepared})

    def _count_compilations(self) -> dict[str, int | None]:
        runtime = self.runtime
        return {
            "num_compilations": runtime.num_compilations(),
            "cache_hits": runtime.num_cache_hits(),
        }

    def _make_arrays(self, case: Any) -> Arrays:
        """Seeded. With a dataset the inputs are its first batch, on which the evidence is
        computed."""
        order, spec = self._order, self._spec
        if order["dataset"] is None:
            return spec.make_arrays(case, order["seed"])
        from benchcore.cell.loader.client import LoaderClient
        from benchcore.cell.loader.epochs import Trainer

        self._trainer = Trainer
        self._loader = LoaderClient(order["dataset"], Path(order["loader_folder"]), order["seed"])
        batch = self._loader.take_first("train", layout="NHWC")
        assert spec.make_training_arrays is not None
        return spec.make_training_arrays(spec.make_arrays, case, order["seed"], batch)

    def _warm_up(self) -> dict[str, Any] | None:
        """Choose the block's length; with a dataset run the parts of an epoch once instead."""
        order, dataset = self._order, self._order["dataset"]
        if dataset is None:
            limit_s, block_ms = order["warm_up_limit_s"], order["block_ms"]
            found = timing.warm_up(
                self._run_steps, self.runtime.num_compilations, limit_s=limit_s, block_ms=block_ms
            )
            self._steps_per_block = found.pop("steps_per_block")
            return found
        training = self.program.program.training
        assert training is not None, "plans name what can be trained"
        self._training = training()
        self._mode: DataMode = dataset["mode"]
        trainer = self._make_trainer(self._mode)
        trainer.warm_up()
        self._inspect_batch = trainer.inspect_batch
        self._learn_first = trainer.learn_first
        return None

    def _make_trainer(self, mode: DataMode, powercap: Path = energy.POWERCAP) -> Trainer:
        return self._trainer(
            training=self._training,
            loader=self._loader,
            mode=mode,
            runtime=self.runtime,
            read_mj=energy.open_counter(self._device, powercap),
            report_alive=self._report_alive,
        )

    def _report_alive(self) -> None:
        """Restart the conductor's time-out, for stages of unknown length."""
        self._channel.send({"stage": self._stage})

    def _run_steps(self, steps: int, step: Callable[[], object] | None = None) -> int:
        """Enqueue `steps` steps and wait for them; nanoseconds."""
        runtime = self.runtime
        return timing.run_steps(
            step or self.program.step, steps, self._group_size, runtime.release, runtime.synchronise
        )

    def answer(self, message: Mapping[str, Any]) -> bool:
        """Handle a message and send the result. Returns whether another message may follow."""
        what = message["do"]
        answers: dict[str, tuple[str, Callable[[], object]]] = {
            "block": ("block", lambda: self._run_block(message)),
            "epoch": ("epoch", lambda: self._run_epoch(message)),
            "latency": ("latency", lambda: self._sample_latency(message)),
            "evidence": ("evidence", lambda: self._write_evidence(message)),
            "memory": ("memory", self._measure_memory),
            "profile": ("profile", self._profile),
            "energy": ("steps", lambda: self._run_for(message["seconds"])),
            "finish": ("finished", self._account),
            "prove": ("proved", lambda: self._prove(message)),
        }
        if what not in answers:
            raise ValueError(
                f"wanted one of {sorted(answers)}, got {what!r}; correct the conductor"
            )
        name, answer = answers[what]
        self._channel.send({name: answer()})
        return what != "finish"

    def _refill_caches(self) -> None:
        """Run untimed steps to refill the caches after a thaw."""
        until = time.perf_counter_ns() + _REWARM_NS
        while True:
            self._run_steps(1)
            if time.perf_counter_ns() >= until:
                return

    def _run_block(self, message: Mapping[str, Any]) -> dict[str, int]:
        """Run untimed steps, then the block."""
        self._stage = "block"
        self._inspection.spot_check(message, self._group_size)
        self._refill_caches()
        before = self.runtime.num_compilations()
        self._steps_per_block, elapsed_ns = timing.run_block(
            self._run_steps, self._steps_per_block, self._order["block_ms"]
        )
        return {
            "steps": self._steps_per_block,
            "elapsed_ns": elapsed_ns,
            "compilations": self.runtime.num_compilations() - before,
        }

    def _run_epoch(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._stage = "epoch"
        self._report_alive()
        found = self._make_trainer(self._mode, Path(message["powercap"])).run(message["epoch"])
        self._data_path = found.pop("data_path")
        return found

    def _write_evidence(self, message: Mapping[str, Any]) -> list[str]:
        """Save what the conductor compares between contenders; the names that were saved.

        `before` the blocks it is of the known start. `after` them one more block shows that the
        timed steps did their work, and the products of some more steps are counted. Then the
        evidence is of a start that this process has not seen. `small` and `large` are last: see
        `large_values`; those in `IN_FLOAT32` are of the same program in that precision.
        """
        self._stage = "evidence"
        runtime, when, case = self.runtime, message["when"], find_case(self._spec, self._order)
        if when in UNUSUAL and (
            case.precision != "fp32_ieee" or self._order["framework"] == "stdlib"
        ):
            return []  # others have no digits left for it, and a bare interpreter no numpy
        if when in IN_FLOAT32 and not agreement.is_proven_in_float32(case):
            return []
        if when == "after":
            self._switches.compare()  # before anybody looks: a program may put all back later
            learn = self._learn_first
            self._inspection.after(self._steps_per_block, whole=message["whole"], learn=learn)
        start = make_start(self._spec, case, self._order["seed"], when)
        if when in IN_FLOAT32:
            found = self._inspection.prove_in_float32(when)
        else:
            found = self.program.prove(runtime.synchronise, runtime.release, start)
        evidence = {**found, **self._inspect_batch(), **self._inspection.take_losses(start)}
        if when == KNOWN and case.use_case == "train":
            evidence |= self.program.list_moved()
        finite = all(map(agreement.is_finite, found.values()))  # the conductor refuses what is not
        if finite and self._learn_first is not None and when in (KNOWN, "after"):
            self.program.check_learning(self._learn_first, runtime.synchronise)
        if when == "before" and finite:
            self._inspection.check_block(self._steps_per_block)
        agreement.save(Path(message["path"]), evidence)  # last: no code of the program runs later
        return sorted(evidence)

    def _prove(self, message: Mapping[str, Any]) -> list[str]:
        """Save the evidence for a proof; return the names of its arrays."""
        self._stage = "prove"
        return self._save_proof(
            self._spec,
            message,
            lambda *given: bind_program(self._order, *given),
            self.runtime,
        )

    def _sample_latency(self, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Time steps that are waited for one by one. Never mix these times with a block's."""
        self._stage = "latency"
        self._inspection.spot_check(limits, self._group_size)
        self._refill_caches()
        before = self.runtime.num_compilations()
        enqueued_ns: list[int] | None = [] if limits.get("enqueued") else None
        step = self.program.step
        samples_ns = timing.sample_latency(
            step if enqueued_ns is None else timing.record_calls(step, enqueued_ns),
            self.runtime.synchronise,
            fewest=limits["fewest"],
            most=limits["most"],
            budget_s=limits["budget_s"],
            report_alive=self._report_alive,
        )
        return {
            "samples_ns": samples_ns,
            "compilations": self.runtime.num_compilations() - before,
            "enqueued_ns": enqueued_ns,
        }

    def _measure_memory(self) -> dict[str, Any]:
        """Memory of single steps, and the metrics without a field of their own. The compiler's
        plan comes after the peaks, because reading it may compile again; new shapes do."""
        self._stage = "memory"
        for _ in range(memory.choose_steps()):
            self._run_steps(1)
        measured = probe_metrics() | time_in_numpy(self.program.in_numpy())
        found = memory.read_process(self._device, self._group, self._baseline_bytes)
        found["allocator_peak_bytes"] = self.runtime.allocator_peak_bytes()
        unseen = self._inspection.list_unseen()
        found["planned_bytes"] = self.runtime.planned_bytes(self.program)
        if self._num_devices > 1:
            measured |= self.runtime.measure_sharing(self.program)
        measured |= measure_new_shapes(self.program.program, self._run_steps)
        self._inspection.check_unseen(unseen)
        return {**({"measured": measured} if measured else {}), **found}

    def _profile(self) -> dict[str, Any] | None:
        """Run some plain steps, and as many under the framework's profiler, which is slower."""
        self._stage = "profile"
        step_ns = self._run_steps(1)
        steps = max(_FEWEST_PROFILED, min(_MOST_PROFILED, round(_PROFILED_NS / step_ns)))
        plain_ns = self._run_steps(steps)
        with tempfile.TemporaryDirectory() as folder:
            seen = self.runtime.profile(self.program, steps, Path(folder))
        return None if seen is None else {"steps": steps, "plain_ns": plain_ns, **seen}

    def _run_for(self, seconds: float) -> int:
        self._stage = "energy"
        return timing.run_for(self._run_steps, seconds)

    def _account(self) -> dict[str, Any]:
        readings = {"switches": self._switches.describe()}
        if self._data_path is not None:
            readings["data_path"] = self._data_path
        return {"effective": self._inspection.account(self._canary, **readings)}


_Number = TypeVar("_Number", int, float)


def _since(
    before: Mapping[str, _Number | None], now: Mapping[str, _Number | None]
) -> dict[str, _Number | None]:
    """The increase of each counter; None if the counter is missing now."""
    return {
        key: None if value is None else value - (before[key] or 0) for key, value in now.items()
    }
