"""One contender's process: prepares its program in stages, then runs blocks when told to."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchcore.cell import energy, memory
from benchcore.cell.canary import CanaryContradictsError, run_canary
from benchcore.cell.causes import Cause
from benchcore.cell.channel import Channel, ChannelClosedError
from benchcore.cell.document import size_case
from benchcore.cell.epochs import Trainer
from benchcore.cell.feed import Feed, ProducerFailedError
from benchcore.cell.handicap import hold_back
from benchcore.cell.manifest import read_manifest
from benchcore.cell.probes import (
    clock_resolution_ns,
    drive,
    how_many_at_once,
    note_calls,
    run_steps,
    sample_latency,
)
from benchcore.cell.process import INFRASTRUCTURE
from benchcore.cell.runtime import Runtime, UnsupportedError, load_runtime
from benchcore.cell.weights import WeightsUnusableError, put_weights
from benchcore.cell.witness import digest, save_proof
from benchcore.program import Arrays, Program
from benchcore.protocol import DataMode
from benchcore.workloads.settings import HANDICAP

_STEADY_BLOCKS = 5
_STEADY_SPREAD = 0.02
_REWARM_NS = 20_000_000
_MAX_STEPS = 100_000
_WEIGHED_STEPS = 5
_PROFILED_NS = 150_000_000
_FEWEST_PROFILED = 2
_MOST_PROFILED = 30


class Contender:
    """What one contender holds between two messages."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stage = "import"
        self._seconds: dict[str, float | None] = {}
        self._steps_per_block = 1
        self._at_once = 1
        self._data_path: str | None = None
        self._see: Callable[[], Mapping[str, Any]] = dict

    def serve(self) -> None:
        """Answer messages until the conductor goes away; a failure is told, then ends us."""
        try:
            self._prepare(self._channel.receive())
            while self._answer(self._channel.receive()):
                pass
        except ChannelClosedError:
            return
        except BaseException as error:  # noqa: BLE001 - the one place where a crash becomes a status
            self._channel.send({"failed": _failure(error, self._stage)})

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self._stage = stage
        self._channel.send({"stage": stage})
        began, compiled = time.perf_counter(), self._compiled_s()
        yield
        took = time.perf_counter() - began - (self._compiled_s() - compiled)
        self._seconds[stage] = max(0.0, took)  # two clocks differ by microseconds

    def _compiled_s(self) -> float:
        """Seconds of trace, lower and compile so far: taken out of the stage they fall in."""
        return sum(seconds or 0.0 for seconds in self._runtime.compile_seconds().values())

    def _prepare(self, order: Mapping[str, Any]) -> None:
        """Everything before the first message: timed for a start, without warm-up for a pass."""
        self._runtime: Runtime = load_runtime(order["framework"])
        with self._timed("import"):
            self._runtime.import_framework()
        spec = importlib.import_module(f"benchcore.workloads.{order['workload']}.spec")
        proves = order["purpose"] == "proof"
        case = None if proves else _find_case(spec, order)
        precision = order["precision"] if case is None else case.precision
        self._device = order["device"]
        with self._timed("init"):
            self._runtime.initialise(
                device=self._device,
                precision=precision,
                threads=order["threads"],
                settings=order["settings"],
            )
        self._stage = "canary"
        self._canary = run_canary(self._runtime, precision)
        if proves:
            self._spec, self._order = spec, order
            self._channel.send({"prepared": {"canary": self._canary}})
            return
        dataset = order["dataset"]
        # Whatever the canary compiled and allocated is not the program's.
        already = self._runtime.compile_seconds()
        hits = {"cache_hits": self._runtime.num_cache_hits()}
        self._baseline_bytes = memory.take_baseline(self._device)
        if dataset is None:
            arrays = spec.make_arrays(case, order["seed"])
        else:
            arrays = self._take_first_batch(order, spec, case)
        arrays = put_weights(arrays, order["checkpoint"])
        with self._timed("build"):
            self._program = self._build(order, case, arrays)
        with self._timed("first_run"):
            self._run_steps(1)
        outputs = self._program.step()
        self._runtime.synchronise(outputs)
        self._at_once = how_many_at_once(outputs)
        del outputs
        warm_up = None
        if order["purpose"] == "timing":
            with self._timed("warm_up"):
                if dataset is None:
                    warm_up = self._warm_up(order["warm_up_limit_s"], order["block_ms"])
                else:
                    assert self._program.training is not None, "plans name what can be trained"
                    self._training = self._program.training()
                    self._mode: DataMode = dataset["mode"]
                    trainer = self._make_trainer(self._mode)
                    trainer.rehearse()
                    self._see = trainer.see
        self._stage = "evidence"
        self._channel.send(
            {
                "prepared": {
                    "stages": {
                        **self._seconds,
                        **_since(already, self._runtime.compile_seconds()),
                    },
                    **_since(hits, {"cache_hits": self._runtime.num_cache_hits()}),
                    "warm_up": warm_up,
                    "steps_per_block": self._steps_per_block,
                    "clock_resolution_ns": clock_resolution_ns(),
                    "inputs_sha256": digest(arrays),
                    "canary": self._canary,
                }
            }
        )

    def _take_first_batch(self, order: Mapping[str, Any], spec: Any, case: Any) -> Arrays:
        """The evidence is taken on the first batch of the dataset."""
        self._feed = Feed(order["dataset"], Path(order["feed_from"]))
        images, labels = self._feed.take_first("train", layout="NHWC")
        return spec.make_training_arrays(spec.make_arrays, case, order["seed"], images, labels)

    def _make_trainer(self, mode: DataMode, powercap: Path = energy.POWERCAP) -> Trainer:
        return Trainer(
            training=self._training,
            feed=self._feed,
            mode=mode,
            runtime=self._runtime,
            read_mj=energy.open_counter(self._device, powercap),
            tell=lambda: self._channel.send({"stage": self._stage}),
        )

    def _build(self, order: Mapping[str, Any], case: Any, arrays: Arrays) -> Program:
        name = f"benchcore.workloads.{order['workload']}.in_{order['framework']}"
        module = importlib.import_module(name)
        asked = {key: value for key, value in order["settings"].items() if key != HANDICAP}
        program = module.build(case, arrays, {**asked, "device": order["device"]})
        return hold_back(program, order["settings"])

    def _warm_up(self, limit_s: float, block_ms: float) -> dict[str, Any]:
        """Blocks until the last five agree within 2 %, or the limit. Settles the block's length."""
        deadline = time.perf_counter() + limit_s
        before = self._runtime.num_compilations()
        step_ns = self._run_steps(1)
        means: list[float] = []
        while True:
            self._steps_per_block = max(1, min(_MAX_STEPS, round(block_ms * 1e6 / step_ns)))
            step_ns = self._run_steps(self._steps_per_block) / self._steps_per_block
            means.append(step_ns)
            last = means[-_STEADY_BLOCKS:]
            steady = len(last) == _STEADY_BLOCKS and max(last) <= min(last) * (1 + _STEADY_SPREAD)
            if steady or time.perf_counter() > deadline:
                late = self._runtime.num_compilations() - before
                return {"num_blocks": len(means), "steady": steady, "compilations": late}

    def _run_steps(self, steps: int) -> int:
        """Enqueue `steps` steps and wait for them; nanoseconds."""
        runtime = self._runtime
        return run_steps(
            self._program.step, steps, self._at_once, runtime.let_go, runtime.synchronise
        )

    def _answer(self, message: Mapping[str, Any]) -> bool:
        what = message["do"]
        answers: dict[str, tuple[str, Callable[[], object]]] = {
            "block": ("block", self._run_block),
            "epoch": ("epoch", lambda: self._run_epoch(message)),
            "latency": ("latency", lambda: self._sample_latency(message)),
            "evidence": ("evidence", lambda: self._write_evidence(Path(message["path"]))),
            "weigh": ("memory", self._weigh),
            "profile": ("profile", self._profile),
            "drive": ("steps", lambda: self._drive(message["seconds"])),
            "finish": ("finished", self._account),
            "prove": ("proved", lambda: self._prove(message)),
        }
        if what not in answers:
            raise ValueError(f"wanted one of {sorted(answers)}, got {what!r}; mend the conductor")
        name, answer = answers[what]
        self._channel.send({name: answer()})
        return what != "finish"

    def _rewarm(self) -> None:
        """Unmeasured steps, which refill the caches after a thaw."""
        until = time.perf_counter_ns() + _REWARM_NS
        while True:
            self._run_steps(1)
            if time.perf_counter_ns() >= until:
                return

    def _run_block(self) -> dict[str, int]:
        """Unmeasured steps, then the block."""
        self._stage = "block"
        self._rewarm()
        before = self._runtime.num_compilations()
        elapsed_ns = self._run_steps(self._steps_per_block)
        return {
            "steps": self._steps_per_block,
            "elapsed_ns": elapsed_ns,
            "compilations": self._runtime.num_compilations() - before,
        }

    def _run_epoch(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._stage = "epoch"
        trainer = self._make_trainer(self._mode, Path(message["powercap"]))
        trainer.tell()
        found = trainer.run(message["epoch"])
        self._data_path = found.pop("data_path")
        return found

    def _write_evidence(self, path: Path) -> list[str]:
        """Save what equivalence compares; the names that were saved."""
        self._stage = "evidence"
        evidence = {**self._program.evidence(), **self._see()}
        if evidence:
            import numpy as np

            np.savez(path, **evidence)  # type: ignore[arg-type] # its own stubs are wrong
        return sorted(evidence)

    def _prove(self, message: Mapping[str, Any]) -> list[str]:
        """Save what the equivalence pass holds against its oracle; the names that were saved."""
        self._stage = "prove"
        return save_proof(self._spec, message, lambda *given: self._build(self._order, *given))

    def _sample_latency(self, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Steps waited for one by one: another quantity than a block's, never mixed with it."""
        self._stage = "latency"
        self._rewarm()
        before = self._runtime.num_compilations()
        enqueued_ns: list[int] | None = [] if limits.get("enqueued") else None
        step = self._program.step
        samples_ns = sample_latency(
            step if enqueued_ns is None else note_calls(step, enqueued_ns),
            self._runtime.synchronise,
            fewest=limits["fewest"],
            most=limits["most"],
            budget_s=limits["budget_s"],
            tell=lambda: self._channel.send({"stage": "latency"}),
        )
        return {
            "samples_ns": samples_ns,
            "compilations": self._runtime.num_compilations() - before,
            "enqueued_ns": enqueued_ns,
        }

    def _weigh(self) -> dict[str, int | None]:
        """Memory of single steps. The plan comes last: asking for it may compile once more."""
        self._stage = "memory"
        for _ in range(_WEIGHED_STEPS):
            self._run_steps(1)
        return {
            "process_baseline_bytes": self._baseline_bytes,
            "process_peak_bytes": memory.read_peak(self._device),
            "allocator_peak_bytes": self._runtime.allocator_peak_bytes(),
            "planned_bytes": self._runtime.planned_bytes(self._program),
        }

    def _profile(self) -> dict[str, Any] | None:
        """Some steps plainly and as many under the framework's profiler, which slows them down."""
        self._stage = "profile"
        step_ns = self._run_steps(1)
        steps = max(_FEWEST_PROFILED, min(_MOST_PROFILED, round(_PROFILED_NS / step_ns)))
        plain_ns = self._run_steps(steps)
        with tempfile.TemporaryDirectory() as folder:
            seen = self._runtime.profile(self._program, steps, Path(folder))
        return None if seen is None else {"steps": steps, "plain_ns": plain_ns, **seen}

    def _drive(self, seconds: float) -> int:
        self._stage = "energy"
        return drive(self._run_steps, seconds)

    def _account(self) -> dict[str, Any]:
        manifest = read_manifest(self._runtime, self._program, self._canary)
        if self._data_path is not None:
            manifest["data_path"] = self._data_path
        return {"effective": {**self._runtime.effective(), "manifest": manifest}}


_Number = TypeVar("_Number", int, float)


def _since(
    before: Mapping[str, _Number | None], now: Mapping[str, _Number | None]
) -> dict[str, _Number | None]:
    """What came since; None where there is no counter now."""
    return {
        key: None if value is None else value - (before[key] or 0) for key, value in now.items()
    }


def _find_case(spec: Any, order: Mapping[str, Any]) -> Any:
    """As ordered: of a dataset's batch and side, in another precision where a probe asks so."""
    case, dataset = spec.CASES[order["case"]], order["dataset"]
    if dataset is not None:
        case = size_case(case, dataset["batch"], dataset["side"])
    other = order.get("precision")
    return case if other is None else dataclasses.replace(case, precision=other)


def _failure(error: BaseException, stage: str) -> dict[str, str]:
    text = f"{type(error).__name__}: {error}"
    status, cause = _classify(error, text, stage)
    return {
        "status": status,
        "cause": cause,
        "stage": stage,
        "reason": text[:2000],
        "traceback": "".join(traceback.format_exception(error))[-8000:],
    }


def _classify(error: BaseException, text: str, stage: str) -> tuple[str, Cause]:
    """The status, and the cause as far as Python tells it."""
    if stage == "import" and isinstance(error, ImportError):
        return "environment", "import"
    if isinstance(error, CanaryContradictsError):
        return "numerics", "precision"
    if isinstance(error, ProducerFailedError | WeightsUnusableError):
        return INFRASTRUCTURE, "exception"
    if isinstance(error, UnsupportedError):
        return "unsupported", "unsupported"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "OutOfMemory" in text:
        return "oom", "out_of_memory"
    if isinstance(error, ModuleNotFoundError) and "benchcore.workloads" in text:
        return "unsupported", "unsupported"
    return "crash", "exception"


def die_with_parent() -> None:
    """Ask Linux to kill us when the conductor dies, even while we are frozen."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
