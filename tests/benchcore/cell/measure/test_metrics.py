"""What a duel measures beside its blocks, against a device of our own that runs behind our back.

Each test also takes the guard away, in its copy of the measured layer, and shows the error that
it stops.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import add_workload, make_contender, make_order, run_order

from benchcore.cell.conductor import Conductor
from benchcore.cell.measure import resource_passes
from benchcore.cell.measure.timing import LARGEST_GROUP, choose_group_size, run_steps
from benchcore.cell.processes.launch import Launcher
from benchcore.protocol import DuelOrder
from benchcore.state import State

WORK_MS = 2.0

_SPEC = "from benchcore.workloads.noop.spec import *"

# The setting `compile` is free text here. The device is a thread: one thing at a time.
_DEVICE = f"""
import time, weakref
from concurrent.futures import Future, ThreadPoolExecutor
from benchcore.program import Program

class Large(Future):
    nbytes = 100_000_000

WORK_S = {WORK_MS} / 1e3
device = ThreadPoolExecutor(1)

def build(case, arrays, settings):
    how = settings["compile"]
    held = []
    made, lost = [], []

    def step(inputs):
        if how == "large results":
            if sum(each.alive for each in made) > 2:
                raise MemoryError("every result is kept")
            if lost:
                raise RuntimeError("a result was let go before it was there")
            result, work = Large(), device.submit(time.sleep, WORK_S)
            result.result = work.result
            made.append(weakref.finalize(result, lambda: work.done() or lost.append(work)))
            return result
        if how == "busy host":
            time.sleep(WORK_S)
        if how == "hungry" and not held:
            held.append(b"x" * 100_000_000)
        return device.submit(time.sleep, WORK_S)

    return Program(step=step)
"""


@pytest.fixture
def snapshot(snapshot: Path) -> Path:
    add_workload(snapshot, "queue", _SPEC, _DEVICE)
    return snapshot


def _break(snapshot: Path, file: str, line: str, instead: str) -> None:
    path = snapshot / "benchcore" / "cell" / file
    source = path.read_text()
    assert source.count(line) == 1
    path.write_text(source.replace(line, instead))


def _order(how: str = "idle host", **changes: Any) -> DuelOrder:
    contender = make_contender("c", settings={"compile": how})
    short = {"starts": 2, "max_starts": 2, "block_ms": 20.0, "warm_up_limit_s": 0.1}
    return make_order(contender, workload="queue", case="bare", **{**short, **changes})


def _run(order: DuelOrder, state: State, snapshot: Path) -> dict[str, Any]:
    document = run_order(order, state, snapshot)
    return document["contenders"][0]


def _step_ms(contender: dict[str, Any]) -> float:
    blocks = [block for start in contender["starts"] for block in start["blocks"]]
    return statistics.median(block["elapsed_ns"] / block["steps"] for block in blocks) / 1e6


def _latency_ms(contender: dict[str, Any]) -> float:
    return statistics.median(contender["starts"][0]["latency_ns"]) / 1e6


@pytest.mark.parametrize("guarded", [True, False])
def test_the_clock_stops_when_the_device_is_done(
    state: State, snapshot: Path, guarded: bool
) -> None:
    if not guarded:
        _break(snapshot, "runtimes/stdlib_runtime.py", "output.result()", "pass")
    contender = _run(_order(), state, snapshot)
    assert contender["status"] == "ok"
    assert (_step_ms(contender) >= WORK_MS) is guarded
    assert (_latency_ms(contender) >= WORK_MS) is guarded


@pytest.mark.parametrize(
    ("file", "guard", "instead", "status"),
    [
        ("", "", "", "ok"),
        ("contender.py", "steps, self._group_size", "steps, steps", "oom"),
        ("measure/timing.py", "release(outputs)", "pass", "crash"),
    ],
)
def test_a_block_frees_large_results_once_they_are_ready(
    state: State, snapshot: Path, file: str, guard: str, instead: str, status: str
) -> None:
    if guard:
        _break(snapshot, file, guard, instead)
    contender = _run(_order("large results"), state, snapshot)
    assert contender["status"] == status, contender["failure"]


def _play(steps: int, at_once: int) -> tuple[list[int], list[int], list[int]]:
    """Steps whose results were let go, those last waited for, and the most alive before each."""
    made: list[weakref.finalize[Any, Any]] = []
    release: list[int] = []
    waited_for: list[int] = []
    alive: list[int] = []

    class Result:
        def __init__(self) -> None:
            self.step = len(made)

    def step() -> Result:
        alive.append(sum(each.alive for each in made[-2 * LARGEST_GROUP :]))
        result = Result()
        made.append(weakref.finalize(result, lambda: None))
        return result

    def note(into: list[int]) -> Callable[[Any], None]:
        return lambda outputs: into.extend(result.step for result in outputs)

    run_steps(step, steps, at_once, note(release), note(waited_for))
    assert len(made) == steps
    return release, waited_for, alive


@pytest.mark.parametrize("steps", [1, 63, 64, 65, 1000])
def test_only_the_last_tiny_results_are_kept_and_all_of_them_awaited(steps: int) -> None:
    release, waited_for, alive = _play(steps, LARGEST_GROUP)
    assert release == []
    assert waited_for == list(range(max(0, steps - LARGEST_GROUP), steps))
    assert max(alive) < LARGEST_GROUP


@pytest.mark.parametrize("steps", [1, 2, 3, 64, 65])
def test_every_large_result_is_waited_for(steps: int) -> None:
    release, waited_for, alive = _play(steps, 2)
    assert release + waited_for == list(range(steps))
    assert max(alive) <= 4


def test_results_are_tiny_where_64_of_them_fit_into_2_mib() -> None:
    def at_once(num_bytes: int) -> int:
        return choose_group_size({"logits": [np.zeros(num_bytes, np.uint8)]})

    assert at_once(1) == at_once(32 << 10) == LARGEST_GROUP
    assert at_once((32 << 10) + 1024) == 62
    assert at_once(1 << 30) == 1


def test_the_bytes_of_a_training_state_count() -> None:
    """A step of a vision model returns a dataclass; only its loss counted."""

    @dataclass
    class Trained:
        params: list[np.ndarray]

    loss = np.zeros(1, np.float32)
    assert choose_group_size((Trained([np.zeros(20 << 20, np.uint8)]), loss)) == 1
    assert choose_group_size((Trained([]), loss)) == LARGEST_GROUP


@pytest.mark.parametrize("guarded", [True, False])
def test_the_host_runs_ahead_in_throughput_but_not_in_latency(
    state: State, snapshot: Path, guarded: bool
) -> None:
    """Host and device take 2 ms each: 2 ms per step in a queue, 4 ms when each is waited for."""
    if not guarded:
        waits = "newer = [synchronise(step()) for"
        _break(snapshot, "measure/timing.py", "newer = [step() for", waits)
    contender = _run(_order("busy host"), state, snapshot)
    assert _latency_ms(contender) >= 2 * WORK_MS
    assert (_latency_ms(contender) / _step_ms(contender) > 1.5) is guarded


def test_the_number_of_latency_samples_follows_the_rule(state: State, snapshot: Path) -> None:
    contender = _run(_order(block_ms=1.0), state, snapshot)
    assert [len(start["latency_ns"]) for start in contender["starts"]] == [25, 25]


@pytest.mark.parametrize("passes", [True, False])
def test_a_duel_that_only_times_steps_has_no_passes(
    state: State, snapshot: Path, passes: bool
) -> None:
    contender = _run(_order(passes=passes), state, snapshot)
    assert contender["status"] == "ok"
    assert contender["warm"] is None  # stdlib compiles nothing
    assert [start["compilation"] for start in contender["starts"]] == [None, None]
    assert {start["caches"] for start in contender["starts"]} == {"warm"}
    assert any(contender["starts"][-1]["memory"].values()) is passes


def test_memory_is_measured_in_a_separate_process(state: State, snapshot: Path) -> None:
    contender = _run(_order("hungry"), state, snapshot)
    first, last = (start["memory"] for start in contender["starts"])
    assert set(first.values()) == {None}
    assert last["process_peak_bytes"] - last["process_baseline_bytes"] > 95_000_000
    assert last["process_baseline_bytes"] < 80_000_000
    assert last["planned_bytes"] is None
    assert last["allocator_peak_bytes"] is None


def test_no_contender_preallocates_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
    order = make_order(make_contender("c"))
    environ = Launcher(order, tmp_path).environ(order.contenders[0])
    assert environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_a_failed_pass_leaves_only_its_own_columns_empty(state: State, snapshot: Path) -> None:
    stage = 'self._stage = "memory"'
    _break(snapshot, "contender.py", stage, f'{stage}; raise MemoryError("no room")')
    contender = _run(_order(), state, snapshot)
    assert contender["status"] == "ok"
    assert [start["memory"]["process_peak_bytes"] for start in contender["starts"]] == [None, None]
    assert contender["effective"]["failed_passes"] == ["memory: MemoryError: no room"]


def test_energy_comes_from_a_counter_over_a_window_and_idle_power_with_it(
    tmp_path: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that always shows 10 W: net of idle, nothing is left."""
    for name, seconds in (("IDLE_S", 0.2), ("SETTLE_S", 0.1), ("WINDOW_S", 0.4)):
        monkeypatch.setattr(resource_passes, name, seconds)
    monkeypatch.setenv("PYTHONPATH", str(snapshot))
    monkeypatch.setattr("benchcore.cell.measure.energy.open_counter", lambda *_: _ten_watts)
    monkeypatch.setattr("benchcore.workloads.contract.importlib.import_module", _spec_of(snapshot))
    order = _order(starts=1, max_starts=1)
    document = Conductor(order, tmp_path).run()
    energy = document["contenders"][0]["starts"][-1]["energy"]
    assert energy["window_ns"] >= 3 * 4e8
    assert len(energy["windows"]) == 3
    for key in ("gross_mj", "window_ns", "steps"):
        assert energy[key] == pytest.approx(sum(each[key] for each in energy["windows"]))
    assert 10 <= energy["steps"] <= energy["window_ns"] / 1e6 / WORK_MS
    # Where others are busy, time passes between reading the counter and reading the clock.
    assert energy["idle_mw"] == pytest.approx(10_000, rel=0.25)
    assert energy["gross_mj"] == pytest.approx(10_000 * energy["window_ns"] / 1e9, rel=0.25)


def _ten_watts() -> float:
    return time.perf_counter() * 10_000


def _spec_of(snapshot: Path) -> Any:
    """For a conductor in this process, whose workloads are the real ones."""
    path = snapshot / "benchcore" / "workloads" / "queue" / "spec.py"
    found = importlib.util.spec_from_file_location("queue_spec", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["queue_spec"] = module  # a dataclass looks itself up
    found.loader.exec_module(module)
    return lambda name: module


def test_a_machine_without_a_counter_has_no_energy(state: State, snapshot: Path) -> None:
    if os.access("/sys/class/powercap/intel-rapl:0/energy_uj", os.R_OK):
        pytest.skip("this machine counts its energy")
    contender = _run(_order(), state, snapshot)
    assert [start["energy"] for start in contender["starts"]] == [None, None]
