"""One contender's process: prepares its program in stages, then runs blocks when told to."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchcore.cell.channel import Channel, ChannelClosedError
from benchcore.cell.runtime import Runtime, load_runtime
from benchcore.program import Arrays, Program

_STEADY_BLOCKS = 5
_STEADY_SPREAD = 0.02
_REWARM_NS = 20_000_000
_MAX_STEPS = 100_000


class Contender:
    """What one contender holds between two messages."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stage = "import"
        self._seconds: dict[str, float | None] = {}

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
        began = time.perf_counter()
        yield
        self._seconds[stage] = time.perf_counter() - began

    def _prepare(self, order: Mapping[str, Any]) -> None:
        with self._timed("import"):
            self._runtime: Runtime = load_runtime(order["framework"])
            self._runtime.import_framework()
        spec = importlib.import_module(f"benchcore.workloads.{order['workload']}.spec")
        case = spec.CASES[order["case"]]
        with self._timed("init"):
            self._runtime.initialise(
                device=order["device"], precision=case.precision, threads=order["threads"]
            )
        arrays = spec.make_arrays(case, order["seed"])
        with self._timed("build"):
            self._program = self._build(order, case, arrays)
        with self._timed("first_run"):
            self._run_steps(1)
        self._exclude_compilation()
        with self._timed("warm_up"):
            warm_up = self._warm_up(order["warm_up_limit_s"], order["block_ms"])
        self._stage = "evidence"
        self._channel.send(
            {
                "prepared": {
                    "stages": self._seconds,
                    "warm_up": warm_up,
                    "steps_per_block": self._steps_per_block,
                    "inputs_sha256": digest(arrays),
                }
            }
        )

    def _build(self, order: Mapping[str, Any], case: Any, arrays: Arrays) -> Program:
        name = f"benchcore.workloads.{order['workload']}.in_{order['framework']}"
        module = importlib.import_module(name)
        return module.build(case, arrays, {**order["settings"], "device": order["device"]})

    def _exclude_compilation(self) -> None:
        """The first run's time is what is left of it when trace, lower and compile are taken out.

        What compiled earlier, while the program was built, is taken from that stage instead.
        """
        compiled = self._runtime.compile_seconds()
        self._seconds.update(compiled)
        spent = sum(seconds or 0.0 for seconds in compiled.values())
        for stage in ("first_run", "build"):
            taken = min(spent, self._seconds[stage] or 0.0)
            self._seconds[stage] = (self._seconds[stage] or 0.0) - taken
            spent -= taken

    def _warm_up(self, limit_s: float, block_ms: float) -> dict[str, Any]:
        """Blocks until the last five agree within 2 %, or the limit. Settles the block's length."""
        deadline = time.perf_counter() + limit_s
        step_ns = self._run_steps(1)
        means: list[float] = []
        while True:
            self._steps_per_block = max(1, min(_MAX_STEPS, round(block_ms * 1e6 / step_ns)))
            step_ns = self._run_steps(self._steps_per_block) / self._steps_per_block
            means.append(step_ns)
            last = means[-_STEADY_BLOCKS:]
            steady = len(last) == _STEADY_BLOCKS and max(last) <= min(last) * (1 + _STEADY_SPREAD)
            if steady or time.perf_counter() > deadline:
                return {"num_blocks": len(means), "steady": steady}

    def _run_steps(self, steps: int) -> int:
        """Enqueue `steps` steps and wait for all of them; nanoseconds. The clock sees no more."""
        step = self._program.step
        synchronise = self._runtime.synchronise
        began = time.perf_counter_ns()
        outputs = [step() for _ in range(steps)]
        synchronise(outputs)
        return max(1, time.perf_counter_ns() - began)

    def _answer(self, message: Mapping[str, Any]) -> bool:
        what = message["do"]
        if what == "block":
            self._channel.send({"block": self._run_block()})
        elif what == "evidence":
            self._channel.send({"evidence": self._write_evidence(Path(message["path"]))})
        elif what == "finish":
            self._channel.send({"finished": self._account()})
        else:
            raise ValueError(f"wanted block, evidence or finish, got {what!r}; mend the conductor")
        return what != "finish"

    def _run_block(self) -> dict[str, int]:
        """Unmeasured steps refill the caches after the thaw; then the block."""
        self._stage = "block"
        rewarm_until = time.perf_counter_ns() + _REWARM_NS
        while True:
            self._run_steps(1)
            if time.perf_counter_ns() >= rewarm_until:
                break
        before = self._runtime.num_compilations()
        elapsed_ns = self._run_steps(self._steps_per_block)
        return {
            "steps": self._steps_per_block,
            "elapsed_ns": elapsed_ns,
            "compilations": self._runtime.num_compilations() - before,
        }

    def _write_evidence(self, path: Path) -> list[str]:
        """Save what equivalence compares; the names that were saved."""
        self._stage = "evidence"
        evidence = self._program.evidence()
        if evidence:
            import numpy as np

            np.savez(path, **dict(evidence))  # type: ignore[arg-type] # its own stubs are wrong
        return sorted(evidence)

    def _account(self) -> dict[str, Any]:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 1 if sys.platform == "darwin" else 1024
        return {
            "effective": self._runtime.effective(),
            "memory": {
                "planned_bytes": None,
                "allocator_peak_bytes": self._runtime.allocator_peak_bytes(),
                "process_peak_bytes": peak_kib * unit,
            },
        }


def digest(arrays: Arrays) -> str:
    """SHA-256 of names, shapes, types and bytes: proves that contenders got the same."""
    sha = hashlib.sha256()
    for group in (arrays.params, arrays.inputs):
        for name in sorted(group):
            array = group[name]
            sha.update(f"{name}{array.shape}{array.dtype}".encode())
            sha.update(array.tobytes())
    return sha.hexdigest()


def _failure(error: BaseException, stage: str) -> dict[str, str]:
    text = f"{type(error).__name__}: {error}"
    return {
        "status": _status_of(error, text, stage),
        "stage": stage,
        "reason": text[:2000],
        "traceback": "".join(traceback.format_exception(error))[-8000:],
    }


def _status_of(error: BaseException, text: str, stage: str) -> str:
    if stage == "import" and isinstance(error, ImportError):
        return "environment"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "OutOfMemory" in text:
        return "oom"
    if isinstance(error, ModuleNotFoundError) and "benchcore.workloads" in text:
        return "unsupported"
    return "crash"


def die_with_parent() -> None:
    """Ask Linux to kill us when the conductor dies, even while we are frozen."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
