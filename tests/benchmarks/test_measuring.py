"""The arithmetic of the benchmark of our own measuring."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agreement import (
    FUNCTIONS,
    LOOP,
    OVERHEAD,
    WORKER,
    Function,
    _order,
    compare,
    judge,
    measure_turns,
    median_interval,
)
from agreement_worker import c_loop
from duel_orders import make_contender, make_order
from measuring import POWER_STARTS, SIZES, _keep_part, find_smallest
from peers import as_if_undisturbed
from short_duels import ShortDuels, count_alarms, find_power, measured_shift, play_abreast
from short_duels import judge as judge_document

from benchcore.cell.processes.launch import Launcher
from benchcore.state import open_state


def _document(log_ratios: list[float], *, stolen: float = 0.0) -> dict[str, Any]:
    """A duel whose second side takes exp(log ratio) as long, start by start."""

    def starts(logs: list[float]) -> list[dict[str, Any]]:
        telemetry = {
            "steal_share": stolen,
            "sm_clock_mhz": None,
            "foreign_processes": None,
            "throttle_reasons": None,
        }
        return [
            {
                "index": index,
                "blocks": [
                    {
                        "round": number,
                        "steps": 1000,
                        "elapsed_ns": 1e9 * math.exp(log),
                        "telemetry": telemetry,
                    }
                    for number in range(4)
                ],
            }
            for index, log in enumerate(logs)
        ]

    sides = {"a": starts([0.0] * len(log_ratios)), "b": starts(log_ratios)}
    allocation = {"started_at": "2026-01-01T00:00:00.000", "ended_at": "2026-01-01T00:00:06.000"}
    contenders = [{"name": name, "starts": each} for name, each in sides.items()]
    return {"allocation": allocation, "contenders": contenders}


def test_the_interval_of_a_median_holds_95_percent() -> None:
    rng = np.random.default_rng(3)
    for count in (6, 20):
        intervals = [median_interval(list(each)) for each in rng.normal(0, 1, (2000, count))]
        assert 0.95 <= np.mean([low <= 0 <= high for low, high in intervals]) <= 0.99


@pytest.mark.parametrize(
    ("middle", "paired", "peer", "verdict"),
    [
        (0.005, (0.004, 0.006), (101.0, 102.0), "agrees within 1 %"),
        (-0.02, (-0.05, 0.01), (97.0, 99.5), "intervals overlap"),
        (-0.02, (-0.03, -0.015), (97.0, 99.5), "overlap, but pairs differ"),
        (-0.02, (-0.05, 0.01), (97.0, 98.5), "DIFFERS"),
        (0.02, (0.015, 0.03), (101.5, 103.0), "DIFFERS"),
    ],
)
def test_a_peer_agrees_or_differs(
    middle: float, paired: tuple[float, float], peer: tuple[float, float], verdict: str
) -> None:
    assert judge(middle, paired, (99.0, 101.0), peer) == verdict


def test_a_peer_that_needs_two_percent_more_is_reported() -> None:
    turn = {"block": 100.0, "latency": 110.0}
    turn |= {"torch_timer": 102.0, "pyperf": 100.0, "timm_loop": 109.9}
    turn |= {"c_loop": 99.5}
    rows = compare(FUNCTIONS[1], [turn] * 8)
    verdicts = {row["peer"]: row["verdict"] for row in rows}
    agrees = "agrees within 1 %"
    wanted = {"torch_timer": "DIFFERS", "pyperf": agrees, "timm_loop": agrees, "c_loop": agrees}
    assert verdicts == wanted


def test_of_a_step_that_does_nothing_the_difference_is_our_loop() -> None:
    (row,) = compare(FUNCTIONS[0], [{"block": 60.0, "c_loop": 40.0}] * 8)
    assert (row["ours_ns"], row["peer_ns"], row["verdict"]) == (60.0, 40.0, OVERHEAD)


def test_a_process_that_times_our_loop_has_no_other_timer(tmp_path: Path) -> None:
    """pyperf is not installed here, so the worker would end if it set up every method."""
    assert [each.title for each in LOOP] == ["torch noop bare", "jax noop bare"]
    order = _order(Function(framework="stdlib", workload="noop", case="bare"))
    job = {"turns": 2, "methods": LOOP[0].methods, "order": order}
    (tmp_path / "job.json").write_text(json.dumps(job))
    answer = subprocess.run(
        [sys.executable, "-P", str(WORKER), str(tmp_path / "job.json")],
        env={**os.environ, "PYTHONPATH": str(WORKER.parent.parent)},
        capture_output=True,
        text=True,
    )
    turns = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [set(turn) for turn in turns] == [{"block", "c_loop"}] * 2, answer.stderr
    (row,) = compare(LOOP[0], turns * 4)
    assert row["peer_ns"] > 0 and 0 < row["ours_ns"] < 1e5


def test_no_timer_is_installed_for_our_loop_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = SimpleNamespace(key="k", name="torch-2.15.0", python=sys.executable)
    jobs: list[dict[str, Any]] = []

    def start(command: list[str], **_: object) -> Any:
        jobs.append(json.loads(Path(command[-1]).read_text()))
        raise SystemExit("no framework here")

    def install(command: list[str]) -> Any:
        raise AssertionError(f"wanted no installation, got {command}")

    monkeypatch.setattr("agreement.find_interpreters", list)
    monkeypatch.setattr("agreement.resolve", lambda *_: None)
    monkeypatch.setattr("agreement.provision", lambda *_, **__: record)
    monkeypatch.setattr("agreement.run_uv_or_cached", install)
    monkeypatch.setattr("agreement.subprocess.Popen", start)
    with pytest.raises(SystemExit, match="no framework here"):
        measure_turns(LOOP[0], open_state(tmp_path / "state"), tmp_path, 20, lambda: None)
    assert jobs[0]["methods"] == ["block", "c_loop"] and jobs[0]["turns"] == 20
    with pytest.raises(AssertionError, match="pyperf"):
        measure_turns(FUNCTIONS[0], open_state(tmp_path / "state"), tmp_path, 20, lambda: None)


def test_a_loop_in_c_runs_the_steps_waits_once_and_raises_what_they_raise() -> None:
    calls: list[object] = []

    def step() -> str:
        time.sleep(1e-4)
        calls.append("step")
        return "output"

    measure = c_loop(step, calls.append, 10)
    assert measure() >= 1e5
    assert calls == ["step"] * 2 + ["output"] + ["step"] * 10 + ["output"]

    def fail() -> None:
        raise ValueError("a step that fails")

    with pytest.raises(ValueError, match="a step that fails"):
        c_loop(fail, calls.append, 3)()


def test_other_timers_run_the_work_of_the_order_of_the_conductor(tmp_path: Path) -> None:
    """Or the worker would end at the first message that it gets."""
    messages: list[dict[str, Any]] = []
    process: Any = SimpleNamespace(request=lambda message, **_: messages.append(message) or {})
    contender = make_contender("one")
    Launcher(make_order(contender), tmp_path).prepare(process, contender)
    assert _order(FUNCTIONS[0]).keys() == messages[0].keys()


def test_alarms_are_counted_at_each_level() -> None:
    noise = [0.0, 0.001, -0.001]
    off = [0.05, 0.06, 0.05]  # t of 16: beyond 99 % of two degrees of freedom
    hardly = [0.03, 0.06, 0.045]  # t of 5.2
    ratios = [judge_document(_document(each)) for each in (noise, off, hardly, noise)]
    shares = {row["what"]: row["share"] for row in count_alarms(ratios)}
    assert shares == {
        "called different": 0.5,
        "95 % interval misses 0": 0.5,
        "99 % interval misses 0": 0.25,
    }


def test_degraded_blocks_take_no_part() -> None:
    assert judge_document(_document([0.5, 0.5], stolen=0.3)).num_starts == 0


def test_power_is_counted_over_groups_of_starts_with_the_right_sign() -> None:
    slower = _document([0.05, 0.051, 0.049, 0.2, -0.3, 0.1])
    faster = _document([-0.05, -0.051, -0.049] * 2)
    rows = find_power([slower, faster], [3])
    assert [row["found_duels"] for row in rows] == [4]
    assert rows[0]["found_share"] == rows[0]["different_share"] == 0.25
    assert rows[0]["seconds"] == 3.0


def test_a_shift_within_the_bound_is_called_same() -> None:
    (row,) = find_power([_document([0.01, 0.0101, 0.0099])], [3])
    assert (row["found_share"], row["different_share"]) == (1.0, 0.0)
    assert measured_shift([_document([0.01] * 3)]) == pytest.approx(0.01005, rel=1e-3)


def test_the_smallest_shift_is_found_with_every_larger_one() -> None:
    shares = {(3, 0.01): 1.0, (3, 0.02): 0.9, (3, 0.05): 1.0, (6, 0.01): 0.5, (6, 0.02): 0.96}
    rows = [
        {"starts": starts, "shift": shift, "found_share": share, "seconds": 1.0}
        for (starts, shift), share in shares.items()
    ]
    smallest = {row["starts"]: row["shift"] for row in find_smallest(rows)}
    assert smallest == {3: 0.05, 6: 0.02}
    assert all(POWER_STARTS % size == 0 for size in SIZES)


def test_a_short_duel_times_both_sides(tmp_path: Path) -> None:
    """The median of three duels, as tests beside them disturb one start's sides unequally."""
    duels = ShortDuels(open_state(tmp_path), "trial")
    measured = list[float]()
    for number in range(3):
        document = duels.play(number, shift=1.0, starts=1, max_starts=1, budget_s=1.0, passes=False)
        a, b = document["contenders"]
        assert (a["status"], b["status"]) == ("ok", "ok"), (a["failure"], b["failure"])
        measured.append(measured_shift([as_if_undisturbed(document)]))
    assert 0.5 < statistics.median(measured) < 1.2, measured


def test_parallel_duels_have_one_cpu_each_and_keep_their_order() -> None:
    def play(number: int) -> dict[str, Any]:
        return {"number": number, "cpus": os.sched_getaffinity(0)}

    all_cpus = os.sched_getaffinity(0)
    came = [each for each in play_abreast([partial(play, n) for n in range(20)]) if each]
    assert [each["number"] for each in came] == list(range(20))
    assert all(len(each["cpus"]) == 1 and each["cpus"] <= all_cpus for each in came)
    assert os.sched_getaffinity(0) == all_cpus


def test_after_a_failure_no_further_duel_begins() -> None:
    begun: list[int] = []

    def play(number: int) -> None:
        begun.append(number)
        if number:
            time.sleep(0.01)
        else:
            raise RuntimeError("duel 0 failed")

    with pytest.raises(RuntimeError, match="duel 0 failed"):
        play_abreast([partial(play, number) for number in range(5000)])
    assert len(begun) < 5000


def test_a_part_measured_again_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("measuring.RESULTS", tmp_path)
    monkeypatch.setattr("one_duel.RESULTS", tmp_path)
    _keep_part("alarms", {"rows": [1]})
    _keep_part("power", {"rows": [2]})
    _keep_part("alarms", {"rows": [3]})
    kept = json.loads((tmp_path / "measuring.json").read_text())
    assert kept == {"alarms": {"rows": [3]}, "power": {"rows": [2]}}
