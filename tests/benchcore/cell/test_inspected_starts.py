"""Which starts are inspected whole, and what their readings leave in a document."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from duel_orders import make_contender, make_order
from result_documents import CAMPAIGN, JAX, TORCH, make_document, spool_document

from benchcore.cell.document import add_effective
from benchcore.cell.inspection import Inspection, describe_size
from benchcore.cell.proof import agreement
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.start import StartRunner, choose_inspected
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.duels import product_frame
from benchcore.store.incoming.ingest import ingest_spool


def test_the_first_start_is_inspected_and_one_that_no_program_can_foresee() -> None:
    assert choose_inspected(1) == {0}
    assert {choose_inspected(3) for _ in range(100)} == {frozenset({0, 1}), frozenset({0, 2})}


_SPOT_CHECK = {"spot_check": True}
_UNUSED: Any = None


def _start_duel(folder: Path, **limits: Any) -> StartRunner:
    order = make_order(make_contender("a"), make_contender("b"), **limits)
    runner = StartRunner(order, folder, folder)
    runner.detect_device()
    for each in runner.contenders.values():
        each["starts"].append({"status": "ok"})
    return runner


def test_each_inspected_start_is_looked_at_once_and_no_program_can_foresee_when(
    tmp_path: Path,
) -> None:
    found, runner = set[tuple[bool, ...]](), _start_duel(tmp_path)
    for _ in range(200):
        runner = _start_duel(tmp_path)
        looks = [*(runner._wants_spot_check("a", 0) for _ in range(3))]
        looks.append(runner._wants_spot_check("a", 0, last=True))
        assert sum(looks) == 1
        assert runner._wants_spot_check("b", 0, last=True)
        found.add(tuple(looks))
    assert len(found) == 4
    runner.drop_measurements(runner.order.contenders[0])  # a crash, and a workaround
    runner.contenders["a"]["starts"].append({"status": "ok"})
    assert runner._wants_spot_check("a", 0, last=True)
    assert not runner._wants_spot_check("b", 0, last=True)
    runner = _start_duel(tmp_path)
    runner._inspected = frozenset()
    assert not runner._wants_spot_check("a", 0, last=True)


class _Looked:
    """An inspection of a step whose calls and results are given."""

    def __init__(self, outputs: Any = (), buffers: int = 2) -> None:
        self.calls = ["multiply"]
        left = iter(outputs)
        nothing = lambda *given: None  # noqa: E731 - many names of one
        bound: Any = SimpleNamespace(
            list_work=lambda list_work: [],
            plain_step=lambda: next(left, [np.zeros(10)]),
            rotation=SimpleNamespace(buffers=range(buffers)),
            check_left_behind=nothing,
            check_block=nothing,
        )
        runtime: Any = SimpleNamespace(
            list_work=self._list, watch_step=lambda *given, **options: {}, synchronise=None
        )
        self.alive: list[int] = []
        self.inspection = Inspection(
            runtime,
            bound,
            lambda *given: 0,
            alone=True,
            in_float32=_UNUSED,
            report_alive=lambda: self.alive.append(1),
        )

    def _list(self, step: Any, *, timed: bool) -> list[str]:
        assert timed
        step()
        return list(self.calls)


def test_what_a_step_calls_between_timed_blocks_is_compared_with_later_steps() -> None:
    looked = _Looked()
    looked.inspection.spot_check(_SPOT_CHECK, 64)
    looked.calls.append("add")
    with pytest.raises(StepUnlikeProofError, match="timed blocks the step did not call 'add'"):
        looked.inspection.after(5, whole=True)


def test_a_look_at_long_steps_is_no_silence() -> None:
    """Each of a large model's steps may take half a minute, and a block has one of them."""
    looked = _Looked(buffers=3)
    looked.inspection.spot_check(_SPOT_CHECK, 64)
    assert len(looked.alive) == 3
    looked.inspection.spot_check({"spot_check": False}, 64)
    assert len(looked.alive) == 3
    looked.inspection.after(5, whole=False)  # later steps of one rotation, and two parts
    assert len(looked.alive) == 3 + 3 + 3


def test_results_must_be_as_large_as_those_that_a_block_was_planned_for() -> None:
    large = [np.zeros(1 << 22)]
    looked = _Looked([large, large, large, [np.zeros(1)], large, large])
    inspection = looked.inspection
    inspection.spot_check(_SPOT_CHECK, 1)
    assert inspection._unlike == {}
    inspection.spot_check(_SPOT_CHECK, 64)  # some inputs lead to small results
    assert inspection._unlike == {}
    inspection.spot_check(_SPOT_CHECK, 64)
    assert inspection._unlike["owed"] == "results of another size than a block was planned for"


def test_evidence_that_is_changed_after_it_was_saved_fails_its_contender(tmp_path: Path) -> None:
    runner = _start_duel(tmp_path)
    for name in ("a", "b"):
        path = tmp_path / f"{name}.npz"
        path.write_bytes(b"1")
        runner.evidence[name] = {"start 0, before": path}
        runner._digests[path] = agreement.digest_file(path)
    runner.refuse_changed()
    assert [each["status"] for each in runner.contenders.values()] == ["ok", "ok"]
    (tmp_path / "b.npz").write_bytes(b"2")
    runner.refuse_changed()
    assert [each["status"] for each in runner.contenders.values()] == ["ok", "numerics"]
    assert "was changed" in runner.contenders["b"]["failure"]["reason"]
    assert list(runner.evidence) == ["a"]
    (tmp_path / "a.npz").unlink()
    runner.refuse_changed()
    assert [each["status"] for each in runner.contenders.values()] == ["numerics", "numerics"]


def test_what_several_contenders_changed_at_the_end_is_no_change_of_the_next_turn(
    tmp_path: Path,
) -> None:
    runner, restored = _start_duel(tmp_path), list[str]()
    own: Any = SimpleNamespace(restore=lambda: restored.append("at the end") or [])
    runner._own, runner._run_rounds = own, lambda index, running: None  # type: ignore[method-assign]
    runner.run(0, [])
    assert restored == ["at the end"]


def test_the_size_of_products_by_shape_is_read_where_inputs_have_several() -> None:
    assert describe_size(838.27, 1) == {"product_size": "838.3 FLOP"}
    assert describe_size(838.27, 3) == {"product_size": "838.3 FLOP", "shape_size": "838.3 FLOP"}


@pytest.mark.parametrize("whole", [True, False])
def test_steps_that_other_processes_follow_are_checked_too(whole: bool) -> None:
    done: list[str] = []

    def record(name: str, found: Any = None) -> Any:
        return lambda *given, **options: (done.append(name), found)[1]

    names = ("check_left_behind", "check_block", "check_long_block", "check_returned", "settle")
    bound: Any = SimpleNamespace(
        is_alone=False,
        describe_kept=record("describe_kept", {"params": "others"}),
        **{name: record(name) for name in names},
    )
    runtime: Any = SimpleNamespace(
        synchronise=None,
        list_floats=None,
        watch_step=record("watch_step", {"host_calls": "none"}),
        count_products=record("count_products", {"compiled_share": 2.0}),
    )
    unused: Any = SimpleNamespace()
    inspection = Inspection(runtime, bound, lambda *given: 0, alone=False, in_float32=unused)
    inspection.check_block(5)
    assert done == ["check_block"]
    done.clear()
    inspection.after(5, whole=whole)
    assert done[:3] == ["watch_step", "check_left_behind", "check_block"]
    wanted = ["count_products", "settle", "describe_kept", "check_long_block", "check_returned"]
    assert done[3:] == (wanted if whole else [])
    read = {"params": "others", "strategy": "devices do 2 times the work of the step"}
    assert inspection._watched == {"host_calls": "none", **(read if whole else {})}


def test_operations_of_an_inspected_step_are_compared_with_those_of_float32() -> None:
    seen = Readings(arrays=[], drawn=0, operations=["mul 8"])
    runtime: Any = SimpleNamespace(inspect_step=lambda step: seen)

    def describe_readings(inspect: Any) -> dict[str, str]:
        return {"reads": "all", "random_numbers": str(inspect(None).drawn)}

    bound: Any = SimpleNamespace(describe_readings=describe_readings)
    other: Any = SimpleNamespace(describe=lambda timed: {"operations": ", ".join(timed)})
    inspection = Inspection(runtime, bound, lambda *given: 0, alone=True, in_float32=other)
    wanted = {"reads": "all", "random_numbers": "0", "operations": "mul 8"}
    assert inspection._take_readings() == wanted


@pytest.mark.parametrize(
    ("first", "later", "kept"),
    [
        ("one wait a block", "one wait a block", "one wait a block"),
        ("9 waits in 3 steps", "one wait a block", "9 waits in 3 steps, then one wait a block"),
    ],
)
def test_a_fair_start_does_not_hide_an_unfair_one(first: str, later: str, kept: str) -> None:
    known: dict[str, Any] = {}
    add_effective(known, {"threads": 2, "manifest": {"synchronisation": first, "reads": "all"}})
    add_effective(known, {"threads": 2, "manifest": {"synchronisation": later}})
    assert known == {"threads": 2, "manifest": {"synchronisation": kept, "reads": "all"}}


def test_the_products_of_both_inspected_starts_are_judged(state: State) -> None:
    once, twice = ({"flops": {"float32": flops}, "missing": {}} for flops in (8, 16))
    document = make_document([JAX, TORCH])
    effective = document["contenders"][0]["effective"]
    for found in (once, None, twice):
        add_effective(effective, {"manifest": {}} | ({"products": found} if found else {}))
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    frame = product_frame(engine, CAMPAIGN)
    engine.dispose()
    assert [*zip(frame["name"], frame["products"], strict=True)] == [
        (JAX.name, once),
        (JAX.name, twice),
        (TORCH.name, None),
    ]
