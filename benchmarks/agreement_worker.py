"""Times one program by several methods in one process, taking turns; runs in a framework's Python.

    python -P agreement_worker.py JOB.json, with the measured layer and pyperf on PYTHONPATH

`block` and `latency` are the contender's own, by the messages that the conductor sends: steps
waited for together, and one by one. The peers time the same step: pyperf's worker, torch's Timer
where torch is, the loop of timm's benchmark.py, which is in no package: some steps to warm up, then
each step waited for; and a bare loop in C (`c_loop.c`), which shows what our loop costs. JAX's
steps return before they are done, so pyperf's clock waits there for the last one, as torch's Timer
does on a GPU. A job with `methods` sets up these alone, so the process has no other timer. Each
turn is printed as one line of JSON: method -> nanoseconds per step.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchcore.cell.contender import ContenderServer

Method = Callable[[], float]
Step = Callable[[], object]
Wait = Callable[[object], None]

MIN_TIME_S = 0.1
"""Shortest turn of each method, as of a block."""
_FEWEST_STEPS = 10
"""timm takes 10 and 40; here as many as fill the time of the other methods."""


class Loopback:
    """The conductor's end of the channel, in the contender's own thread."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def send(self, message: dict[str, Any]) -> None:
        """Keep the contender's last message."""
        self.last = message


def main(job: dict[str, Any]) -> None:
    """Prepare the contender; then one turn not counted, and `turns` in alternating order."""
    loopback = Loopback()
    contender = ContenderServer(loopback)  # type: ignore[arg-type]
    contender.prepare(job["order"])
    step, wait = contender.program.step, contender.runtime.synchronise

    def block() -> float:
        contender.answer({"do": "block"})
        found = loopback.last["block"]
        assert found["compilations"] == 0, "a block that compiles is no steady one"
        return found["elapsed_ns"] / found["steps"]

    def latency() -> float:
        limits = {"fewest": _FEWEST_STEPS, "most": 10**6, "budget_s": MIN_TIME_S}
        contender.answer({"do": "latency", **limits})
        return statistics.fmean(loopback.last["latency"]["samples_ns"])

    step_ns = block()
    num_steps = loopback.last["block"]["steps"]
    available: dict[str, Callable[[], Method]] = {
        "block": lambda: block,
        "latency": lambda: latency,
        "timm_loop": lambda: _timm_loop(step, wait, step_ns),
        "c_loop": lambda: c_loop(step, wait, num_steps),
    }
    if job["order"]["framework"] == "torch":
        available["torch_timer"] = lambda: _torch_timer(step)
    available["pyperf"] = lambda: _pyperf(step, wait)
    methods = {name: available[name]() for name in job["methods"] or available}
    for turn in range(-1, job["turns"]):
        order = list(methods.items())[:: -1 if turn % 2 else 1]
        found = {name: method() for name, method in order}
        if turn >= 0:
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


def _timm_loop(step: Step, wait: Wait, step_ns: float) -> Method:
    num_steps = max(_FEWEST_STEPS, round(MIN_TIME_S * 1e9 / step_ns))

    def timed() -> float:
        began = time.perf_counter()
        output = step()
        wait([output])
        return time.perf_counter() - began

    def measure() -> float:
        for _ in range(_FEWEST_STEPS):
            timed()
        return sum(timed() for _ in range(num_steps)) / num_steps * 1e9

    return measure


def c_loop(step: Step, wait: Wait, num_steps: int) -> Method:
    """As many steps as a block has, after some that are not timed. Needs a C compiler."""
    source = Path(__file__).with_name("c_loop.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "c_loop.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        run = ctypes.PyDLL(str(library)).time_steps  # raises what a step raised
    run.restype = ctypes.c_longlong
    run.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_longlong)

    def measure() -> float:
        run(step, wait, max(1, num_steps // 5))
        return run(step, wait, num_steps) / num_steps

    return measure


def _torch_timer(step: Step) -> Method:
    import torch
    from torch.utils.benchmark import Timer

    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return lambda: timer.adaptive_autorange(min_run_time=MIN_TIME_S).median * 1e9


def _pyperf(step: Step, wait: Wait) -> Method:
    """pyperf's worker in this process: loops calibrated once, then a warm-up and three values."""
    import pyperf

    def loop(loops: int) -> float:
        each = range(loops)
        began = time.perf_counter()
        for _ in each:
            output = step()
        wait([output])
        return time.perf_counter() - began

    runner = pyperf.Runner(values=3, warmups=1, min_time=MIN_TIME_S)
    options = runner.parse_args(["--worker", "--quiet", "--calibrate-loops"])
    turns = iter(range(10**9))

    def run() -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return runner.bench_time_func(f"turn {next(turns)}", loop)

    options.loops = run().get_metadata()["calibrate_loops"]
    options.calibrate_loops = False
    return lambda: statistics.fmean(run().get_values()) * 1e9


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
