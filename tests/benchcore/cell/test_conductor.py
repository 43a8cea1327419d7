"""The conductor against contenders that behave, crash, hang, lie and spin."""

from __future__ import annotations

import dataclasses
import stat
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from duel_orders import (
    add_gpus,
    copy_inside_ring,
    ignore_host_load,
    make_contender,
    make_faulty_order,
    make_order,
    run_order,
)

from benchcore.cell.start import schedule_rounds
from benchcore.cell.stopping import MIN_STEPS
from benchcore.planning.catalog import is_faulty
from benchcore.planning.profiles import PROFILES
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import DuelOrder
from benchcore.running.duel_process import ConductorFailedError, run_duel
from benchcore.state import State, open_state
from benchcore.store.incoming.documents import read_document
from benchcore.workloads.faulty import spec as faulty


def test_noop_runs_in_a_bare_interpreter_and_leaves_a_valid_document(
    state: State, tmp_path: Path
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    order = make_order(make_contender("bare", python=str(bare)))
    document = run_order(order, state, take_snapshot(state.snapshots))
    (contender,) = document["contenders"]
    assert contender["status"] == "ok"
    assert [start["index"] for start in contender["starts"]] == [0, 1]
    for start in contender["starts"]:
        assert len(start["blocks"]) == order.limits.rounds
        assert start["compilations_in_blocks"] == 0
        assert start["memory"]["allocator_peak_bytes"] is None
        assert start["stages"]["compile"] is None
        assert start["warm_up"]["compilations"] == 0
        assert len(start["latency_ns"]) >= 25
    assert contender["starts"][0]["memory"]["process_peak_bytes"] is None
    assert contender["starts"][1]["memory"]["process_peak_bytes"] > 0


def test_a_probe_without_a_framework_is_measured_after_each_round(
    state: State, snapshot: Path
) -> None:
    """Without numpy it has no product; one that dies is reported, and the duel continues."""

    def run(number: int) -> dict[str, Any]:
        short = {"starts": 1, "rounds": 2, "passes": False, "duel_run": f"{number:016x}"}
        return run_order(make_order(make_contender("a"), probe=True, **short), state, snapshot)

    probe = run(1)["probe"]
    assert [(row["start"], row["round"]) for row in probe["rows"]] == [(0, 0), (0, 1)]
    assert probe["failure"] is None
    assert all(1e4 < row["gemm_ns"] < 1e9 and 1e5 < row["copy_ns"] < 1e10 for row in probe["rows"])
    (snapshot / "numpy.py").write_text("raise ImportError\n")
    assert {row["gemm_ns"] for row in run(2)["probe"]["rows"]} == {None}
    module = snapshot / "benchcore" / "cell" / "measure" / "machine_probe.py"
    broken = module.read_text().replace(
        "    multiply, copy = ", "    raise OSError\n    multiply = "
    )
    module.write_text(broken)
    document = run(3)
    assert document["probe"]["rows"] == []
    assert "ended with exit code 1" in document["probe"]["failure"]
    assert document["contenders"][0]["status"] == "ok"
    assert len(document["contenders"][0]["starts"][0]["blocks"]) == 2


def test_a_duel_already_in_the_spool_is_not_measured_again(state: State) -> None:
    order = make_order(make_contender("bare"))
    snapshot = take_snapshot(state.snapshots)
    seen: list[dict[str, Any]] = []
    first = run_duel(order, state, snapshot, seen.append)
    kinds = [each["event"] for each in seen]
    assert kinds.count("evidence") == order.limits.starts and kinds[-2:] == ["evidence", "passes"]
    content = first.read_bytes()
    events: list[object] = []
    assert run_duel(order, state, snapshot, events.append) == first
    assert first.read_bytes() == content
    assert events == []


FAULTS = {
    "raise_in_build": (("crash", "exception"), "build", "raises in the build"),
    "out_of_memory": (("oom", "out_of_memory"), "first_run", "MemoryError"),
    "segfault": (("crash", "signal"), "first_run", "SIGSEGV"),
    "abort": (("crash", "signal"), "first_run", "SIGABRT"),
    "exit_zero": (("crash", "no_result"), "first_run", "exit code 0 without a result"),
    "partial_message": (("crash", "no_result"), "first_run", "exit code 1 without a result"),
    "hang_in_build": (("timeout", "timeout"), "build", "no message for 4 s"),
    "hang_in_step": (("timeout", "timeout"), "first_run", "no message for 4 s"),
    "garbage": (("crash", "garbage"), "first_run", "not json"),
    "not_finite": (("numerics", "not_finite"), "evidence", "value is not finite"),
    "raise_late": (("crash", "exception"), "block", "late"),
}
"""How a contender with each fault ends: status and cause, stage, words of the reason."""


@pytest.fixture(scope="module")
def survivors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The contenders of one duel: two healthy ones, and between them one for each fault."""
    root = tmp_path_factory.mktemp("faults")
    snapshot, state = root / "snapshot", open_state(root / "state")
    copy_inside_ring(snapshot)
    workload = snapshot / "benchcore" / "workloads" / "faulty" / "in_stdlib.py"
    source, line = workload.read_text(), "    healthy = read_settings("
    assert source.count(line) == source.count("else case.fault\n") == 1
    source = source.replace(line, f'    fault = settings.pop("fault", None)\n{line}')
    workload.write_text(source.replace("else case.fault\n", "else fault\n"))
    healthy = {"compile": "healthy"}
    faulty_ones = [
        make_contender(fault, settings={"compile": "none", "fault": fault}) for fault in FAULTS
    ]
    order = make_order(
        make_contender("first", settings=healthy),
        *faulty_ones,
        make_contender("last", settings=healthy),
        workload="faulty",
        case="raise_in_build",
        block_ms=20.0,
        prepare_timeout_s=4.0,
    )
    return {each["name"]: each for each in run_order(order, state, snapshot)["contenders"]}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fatal_failure_of_one_contender_is_its_status_and_the_duel_continues(
    survivors: dict[str, dict[str, Any]], fault: str
) -> None:
    ended, stage, words = FAULTS[fault]
    broken = survivors[fault]
    assert (broken["status"], broken["failure"]["cause"]) == ended
    assert broken["failure"]["stage"] in {stage, "warm_up" if stage == "block" else stage}
    assert words in broken["failure"]["reason"]
    for healthy in (survivors["first"], survivors["last"]):
        assert (healthy["status"], healthy["failure"]) == ("ok", None)
        assert [len(start["blocks"]) for start in healthy["starts"]] == [4, 4]


def test_outputs_that_are_not_finite_in_a_later_start_are_found_too(
    state: State, snapshot: Path, tmp_path: Path
) -> None:
    workload = snapshot / "benchcore" / "workloads" / "faulty" / "in_stdlib.py"
    source = workload.read_text()
    line = '        return {"value": math.nan} if fault == "not_finite" else {}\n'
    assert line in source
    later = f"""        with open({str(tmp_path / "calls")!r}, "a+") as calls:
            calls.write("x")
            return {{"value": math.nan if calls.tell() > 2 else 1.0}}
"""
    workload.write_text(source.replace(line, later))
    (contender,) = run_order(make_faulty_order("not_finite", "none"), state, snapshot)["contenders"]
    assert [start["status"] for start in contender["starts"]] == ["ok", "numerics"]
    assert contender["status"] == "numerics"
    assert (contender["failure"]["cause"], contender["failure"]["start"]) == ("not_finite", 1)


def test_a_contender_that_is_killed_twice_is_killed_in_the_document(
    state: State, snapshot: Path
) -> None:
    events: list[dict[str, Any]] = []
    order = make_faulty_order("killed", "none", "healthy", starts=1, rounds=2)
    killed, healthy = read_document(run_duel(order, state, snapshot, events.append))["contenders"]
    assert (killed["status"], killed["failure"]["cause"]) == ("killed", "killed")
    assert "killed by SIGKILL" in killed["failure"]["reason"]
    assert healthy["status"] == "ok"
    assert [each["event"] for each in events].count("again") == 1


def test_out_of_memory_is_a_status_and_the_batch_is_never_reduced(
    state: State, snapshot: Path
) -> None:
    document = run_order(make_faulty_order("out_of_memory", "none", "healthy"), state, snapshot)
    starved, healthy = document["contenders"]
    assert (starved["status"], len(starved["starts"])) == ("oom", 1)
    assert starved["starts"][0]["blocks"] == []
    assert (document["duel"]["case"], document["duel"]["batch"]) == ("out_of_memory", 1)
    assert [start["status"] for start in healthy["starts"]] == ["ok", "ok"]


def test_a_hang_before_the_build_is_a_timeout_of_its_stage(state: State) -> None:
    order = make_faulty_order("hang_in_init", "none")
    (contender,) = run_order(order, state, take_snapshot(state.snapshots))["contenders"]
    assert (contender["status"], contender["failure"]["stage"]) == ("timeout", "init")
    assert contender["failure"]["cause"] == "timeout"


def test_every_fault_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert not [fault for fault in faulty.CASES if f'"{fault}"' not in source]


def test_no_profile_measures_faults() -> None:
    duels = [match for profile in PROFILES.values() for match in profile().matches]
    assert not [match.workload for match in duels if is_faulty(match.workload)]
    assert is_faulty("faulty")


def test_an_environment_that_cannot_be_built_is_not_a_benchmark_failure(
    state: State, snapshot: Path
) -> None:
    order = make_order(
        make_contender("gone", environment_failure="the lock did not resolve"),
        make_contender("missing", python="/nonexistent/python"),
        make_contender("fine"),
    )
    order = DuelOrder(**{**order.__dict__, "contenders": order.contenders[::-1]})
    document = run_order(order, state, snapshot)
    fine, missing, gone = document["contenders"]
    assert (fine["status"], missing["status"], gone["status"]) == (
        "ok",
        "environment",
        "environment",
    )
    assert gone["failure"]["reason"] == "the lock did not resolve"
    assert {each["failure"]["cause"] for each in (missing, gone)} == {"environment"}


def test_a_framework_that_does_not_import_is_an_environment_failure(state: State) -> None:
    order = make_order(
        make_contender("bare"), make_contender("torch", framework="torch", version="2.15.0")
    )
    bare, torch = run_order(order, state, take_snapshot(state.snapshots))["contenders"]
    assert (bare["status"], torch["status"]) == ("ok", "environment")
    assert torch["failure"]["cause"] == "import"
    assert "No module named 'torch'" in torch["failure"]["reason"]


def test_a_workload_that_lacks_this_side_is_unsupported(state: State, snapshot: Path) -> None:
    (snapshot / "benchcore" / "workloads" / "faulty" / "in_stdlib.py").unlink()
    (contender,) = run_order(make_faulty_order("segfault", "healthy"), state, snapshot)[
        "contenders"
    ]
    assert (contender["status"], contender["failure"]["cause"]) == ("unsupported",) * 2


def test_a_dead_conductor_is_an_infrastructure_failure_and_leaves_nothing_behind(
    state: State, snapshot: Path
) -> None:
    order = make_order(make_contender("bare"), workload="noop", case="unknown")
    with pytest.raises(ConductorFailedError, match="unknown"):
        run_duel(order, state, snapshot, lambda event: None)
    assert list(state.spool.rglob("*.json*")) == []


@pytest.mark.parametrize(
    ("limits", "stopped_by", "starts", "rounds"),
    [
        ({"max_starts": 4, "target": 1e-9, "budget_s": 1e6}, "max_starts", 4, 6),
        ({"max_starts": 4, "target": 1e-9, "budget_s": 0.0}, "budget", 2, 4),
        ({"max_starts": 9, "target": 50.0, "budget_s": 1e6}, "target", 3, 4),
    ],
)
def test_a_duel_records_what_ended_it(
    state: State,
    snapshot: Path,
    limits: dict[str, Any],
    stopped_by: str,
    starts: int,
    rounds: int,
) -> None:
    ignore_host_load(snapshot)
    order = make_faulty_order(
        "raise_in_build", "healthy", "healthy", max_rounds=6, block_ms=20.0, **limits
    )
    document = run_order(order, state, snapshot)
    assert document["duel"]["stopped_by"] == stopped_by
    for contender in document["contenders"]:
        assert [start["index"] for start in contender["starts"]] == list(range(starts))
        assert [len(start["blocks"]) for start in contender["starts"]] == [rounds] * starts
        steps = [block["steps"] for start in contender["starts"] for block in start["blocks"]]
        assert sum(steps) >= MIN_STEPS


def test_blocks_that_were_disturbed_neither_settle_a_start_nor_a_duel(
    state: State, snapshot: Path
) -> None:
    """A GPU that throttles all the while, and a target that any valid block would meet."""
    ignore_host_load(snapshot)
    (runtime,) = snapshot.glob("benchcore/cell/runtimes/stdlib_runtime.py")
    runtime.write_text(runtime.read_text().replace('if device != "cpu"', "if False"))
    limits = {"max_rounds": 6, "max_starts": 4, "target": 50.0, "block_ms": 5.0}
    order = make_faulty_order("raise_in_build", "healthy", "healthy", device="cuda", **limits)
    for throttle, stopped_by, rounds in (("0x8", "max_starts", 6), ("0", "target", 4)):
        add_gpus(snapshot, 1, throttle=throttle)
        order = dataclasses.replace(order, duel_run=f"{rounds:016x}")
        document = run_order(order, state, snapshot)
        assert document["duel"]["stopped_by"] == stopped_by
        for contender in document["contenders"]:
            assert {len(start["blocks"]) for start in contender["starts"]} == {rounds}


def test_slow_steps_get_rounds_until_there_are_fifty(state: State, snapshot: Path) -> None:
    order = make_faulty_order("raise_in_build", "healthy", "healthy", starts=1, block_ms=0.1)
    slow, _ = run_order(order, state, snapshot)["contenders"]
    assert [block["steps"] for block in slow["starts"][0]["blocks"]] == [1] * MIN_STEPS


def test_rounds_are_balanced_and_seeded() -> None:
    orders = list(islice(schedule_rounds(["a", "b", "c"], "1-0"), 6))
    assert orders == list(islice(schedule_rounds(["a", "b", "c"], "1-0"), 6))
    others = [list(islice(schedule_rounds(["a", "b", "c"], f"{n}-0"), 6)) for n in range(2, 6)]
    assert any(other != orders for other in others)
    for first, mirror in zip(orders[::2], orders[1::2], strict=True):
        assert mirror == first[::-1]
    for name in "abc":
        assert sum(order.index(name) for order in orders) == 6
