"""Which starts are inspected whole, and what their readings leave in a document."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from result_documents import CAMPAIGN, JAX, TORCH, make_document, spool_document

from benchcore.cell.document import add_effective
from benchcore.cell.inspection import Inspection, describe_size
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.start import choose_inspected
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.duels import product_frame
from benchcore.store.incoming.ingest import ingest_spool


def test_the_first_start_is_inspected_and_one_that_no_program_can_foresee() -> None:
    assert choose_inspected(1) == {0}
    assert {choose_inspected(3) for _ in range(100)} == {frozenset({0, 1}), frozenset({0, 2})}


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
