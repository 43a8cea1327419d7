"""The processes that measure memory and energy run the program that is proven."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from duel_orders import make_contender, make_order

from benchcore.cell import contender
from benchcore.cell.contender import ContenderServer
from benchcore.cell.measure import energy, memory
from benchcore.cell.measure.resource_passes import ResourcePasses
from benchcore.cell.processes.process import ContenderProcess
from benchcore.cell.proof.agreement import compare_all
from benchcore.cell.start import StartRunner


class _Process:
    """A contender's process; `done` collects what it was sent."""

    pid = 7

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.freeze = self.thaw = self.close = lambda: None

    def request(self, message: dict[str, Any], *, wanted: str, timeout_s: float) -> Any:
        self._done.append(message["do"])
        return 10 if wanted == "steps" else {}


def test_a_process_that_measures_memory_or_energy_is_proven_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(energy, "open_counter", lambda *given: lambda: 0.0)
    monkeypatch.setattr(
        energy,
        "measure",
        lambda read, run: (run(), SimpleNamespace(energy_mj=1.0, window_ns=1, power_mw=1.0))[1],
    )
    monkeypatch.setattr(ContenderProcess, "close", lambda self: None)
    order = make_order(make_contender("c"))
    passes = ResourcePasses(
        order,
        lambda each: (_Process(done), None),  # type: ignore[arg-type,return-value]
        lambda name, what, process: done.append(f"proof of {name}, {what}"),
        powercap=tmp_path,
    )
    passes.run({"c": {"status": "ok", "starts": [{}], "effective": {}}})
    assert done == [
        *("memory", "proof of c, memory", "profile"),
        *(["energy"] * 4),
        "proof of c, energy",
    ]


def test_evidence_of_a_pass_is_compared_with_the_other_sides(tmp_path: Path) -> None:
    order = make_order(make_contender("a"), make_contender("b"))
    runner = StartRunner(order, tmp_path, tmp_path)
    logits = np.linspace(0.0, 1.0, 8)

    def make(array: np.ndarray) -> Any:
        def request(message: dict[str, Any], **options: object) -> list[str]:
            np.savez(message["path"], logits=array)
            return ["logits"]

        return SimpleNamespace(request=request)

    for name, array in (("a", logits), ("b", logits[::-1])):
        runner._collect_evidence(name, "start 0", make(logits), "before")
        (row,) = compare_all(runner.evidence, {"logits": 1e-5}) or [{"agrees": True}]
        assert row["agrees"]
        runner.prove_pass(name, "memory", make(array))
    (row,) = compare_all(runner.evidence, {"logits": 1e-5})
    assert not row["agrees"]


def test_no_program_can_foresee_how_many_steps_its_memory_is_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {memory.choose_steps() for _ in range(300)} == set(range(5, 10))
    done: list[str] = []

    def record(name: str, found: Any = None) -> Any:
        return lambda *given: (done.append(name), found)[1]

    monkeypatch.setattr(memory, "choose_steps", lambda: 2)
    monkeypatch.setattr(memory, "read_process", record("read", {}))
    monkeypatch.setattr(contender, "measure_new_shapes", record("new shapes", {}))
    server: Any = ContenderServer(SimpleNamespace())  # type: ignore[arg-type]
    server.program = SimpleNamespace(in_numpy=lambda: None, program=None)
    server.runtime = SimpleNamespace(
        allocator_peak_bytes=lambda: None, planned_bytes=record("plan")
    )
    server._inspection = SimpleNamespace(
        list_unseen=record("list calls", ["mul"]), check_unseen=record("compare calls")
    )
    server._device, server._baseline_bytes, server._num_devices = "cpu", 0, 1
    server._run_steps = record("step")
    assert server._measure_memory() == {"allocator_peak_bytes": None, "planned_bytes": None}
    assert done == ["step", "step", "read", "list calls", "plan", "new shapes", "compare calls"]
