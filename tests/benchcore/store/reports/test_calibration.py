"""Calibration runs in the database: counted, and separate from everything else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from result_documents import JAX, TORCH, make_document
from sent_statements import record_statements
from stored_histories import store_history

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.profiles import bottleneck_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import list_suspicions, refresh_suspicions
from benchcore.store.reports import calibration
from benchcore.store.reports.calibration import measure_calibration
from benchcore.store.reports.campaign import list_contenders, list_ratios
from benchcore.verdict.confirmation.error_rates import (
    FEWEST_RUNS,
    CalibrationOutcome,
    CalibrationRun,
    judge_run,
)

RNG = np.random.default_rng(8)


def _start(number: int, moved: dict[str, float], slowed: str | None = None) -> dict[str, Any]:
    """One start of a trial: what the cells really took more, and which was found to."""
    racers, slowdowns = [], dict[str, int]()
    for cell, base in (
        *(("a_old", JAX), ("a_new", JAX)),
        *(("b_old", TORCH), ("b_new", TORCH)),
        ("control", JAX),
    ):
        name = f"{base.name}.{cell}"
        factor = math.exp(moved.get(cell, 0.0) + RNG.normal(0, 0.002))
        racers.append(replace(base, name=name, step_ns=base.step_ns * factor))
        if cell == slowed:
            slowdowns[name] = 5
    document = make_document(racers, duel_run=f"{number:016x}", campaign="night", starts=1)
    document["duel"] |= {"track": "calibration", "seed": number}
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    document["allocation"]["started_at"] = begun.isoformat()
    document["allocation"]["ended_at"] = (begun + timedelta(minutes=1)).isoformat()
    for contender in document["contenders"]:
        if contender["name"] in slowdowns:
            contender["settings"]["injected_slowdown"] = str(slowdowns[contender["name"]])
        contender["starts"][0]["steps_per_block"] = 100
    return document


def _write_run(
    trial: int, moved: dict[str, float], slowed: str | None = None, starts: Sequence[int] = range(5)
) -> list[dict[str, Any]]:
    return [_start(5 * trial + each, moved, slowed) for each in starts]


def _rates(engine: Engine) -> dict[str, tuple[int, int]]:
    return {
        row["rate"]: (row["hits"], row["total"]) for row in measure_calibration(engine)["rates"]
    }


def test_runs_are_judged_again_once_another_start_is_stored(
    state: State, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(engine, state, _write_run(0, {}))
    # As a dashboard remembers it.
    first = json.loads(json.dumps(measure_calibration(engine)))
    assert first["rules"] and first["runs"]
    with monkeypatch.context() as patched:
        patched.delattr("benchcore.store.reports.calibration.judge_run")
        assert measure_calibration(engine, first) == first
        patched.setattr("benchcore.store.reports.calibration.METHOD", 0)
        with pytest.raises(NameError):
            measure_calibration(engine, first)
    store_history(engine, state, _write_run(1, {"b_new": 0.06}))
    judged: list[int] = []

    def count(run: CalibrationRun) -> CalibrationOutcome:
        judged.append(run.number)
        return judge_run(run)

    with monkeypatch.context() as patched:
        patched.setattr("benchcore.store.reports.calibration.judge_run", count)
        again = measure_calibration(engine, first)
    assert judged == [1]
    assert json.dumps(again) == json.dumps(measure_calibration(engine))
    assert len(again["runs"]) == 2


def test_a_false_alarm_in_the_store_is_counted_as_one(state: State, engine: Engine) -> None:
    quiet, faked = _write_run(0, {}), _write_run(2, {"b_new": 0.06})
    found, missed = _write_run(1, {"a_new": 0.05}, "a_new"), _write_run(3, {}, "b_new")
    store_history(engine, state, [*quiet, *found, *faked, *missed])
    assert _rates(engine) == {
        "false alarms": (1, 2),
        "+5 % found": (1, 2),
        "alarms that were right": (1, 2),
        "right culprit": (1, 1),
    }
    found = measure_calibration(engine)
    assert [row["outcome"] for row in found["runs"]] == [
        "no alarm, correctly",
        "found",
        "false alarm",
        "missed",
    ]
    row = found["runs"][1]
    assert (row["number"], found["fewest_runs"]) == (1, FEWEST_RUNS)
    assert (row["slowed"], row["percent"], row["culprit"]) == ("jax", 5, "jax")
    assert row["measured"] == pytest.approx(math.expm1(0.05), abs=0.005)
    assert (found["unfinished"], found["lost"]) == (0, [])


def test_rates_are_those_of_the_newest_starts(
    state: State, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_MOST_STARTS", 5)
    store_history(engine, state, [*_write_run(0, {"b_new": 0.06}), *_write_run(1, {})])
    assert _rates(engine)["false alarms"] == (0, 1)


def test_calibration_runs_are_in_no_series_and_never_suspected(
    state: State, engine: Engine
) -> None:
    starts = [_start(night, {"b_new": 0.3 * (night > 15)}) for night in range(25)]
    store_history(engine, state, starts)
    assert len(duel_frame(engine)) == 25
    assert ratio_frame(engine).empty
    assert list_ratios(engine, "night") == list_contenders(engine, "night") == []
    assert bottleneck_frame(engine).empty
    assert read_series(engine) == []
    refresh_suspicions(engine)
    assert list_suspicions(engine) == []


def test_a_calibration_run_waits_for_its_nights_but_not_for_missed_ones(
    state: State, engine: Engine
) -> None:
    store_history(engine, state, _write_run(0, {}, starts=range(4)))
    assert (_rates(engine)["false alarms"], measure_calibration(engine)["unfinished"]) == (
        (0, 0),
        1,
    )
    store_history(engine, state, _write_run(1, {}, "a_new", starts=range(2)))
    found = measure_calibration(engine)
    assert [row["starts"] for row in found["runs"]] == [4]
    assert found["unfinished"] == 1


def test_calibration_runs_that_do_not_count_are_left_out_and_listed(
    state: State, engine: Engine
) -> None:
    documents = _write_run(0, {})
    coarse = _write_run(1, {}, "a_new")
    for contender in coarse[0]["contenders"]:
        contender["starts"][0]["steps_per_block"] = 19
    lacking = _start(99, {})
    gone = lacking["contenders"].pop()["name"]
    pairs = lacking["equivalence"]
    lacking["equivalence"] = [each for each in pairs if gone not in (each["a"], each["b"])]
    telemetry = {"foreign_cpu_share": 0.5}
    for block in documents[3]["contenders"][2]["starts"][0]["blocks"]:
        block["telemetry"] |= telemetry
    store_history(engine, state, [*documents, *coarse, lacking], wrong=[1])
    found = measure_calibration(engine)
    assert [row["starts"] for row in found["runs"]] == [3]
    assert found["unfinished"] == 1  # one start of the second is lost, and nothing came after it
    first, disturbed, second, third = found["lost"]
    assert first == f"duel run {1:016x}: wrong"
    assert disturbed.startswith(f"duel run {3:016x}: disturbed throughout")
    assert (
        "blocks of 19 steps, and 5 % more work can only be applied evenly in 20 or more" in second
    )
    assert third == f"duel run {99:016x} has 4 contenders, not 5"


def test_a_series_reports_the_smallest_effect_it_can_detect(state: State, engine: Engine) -> None:
    nights = []
    for night in range(6):
        factors = tuple(np.exp(RNG.normal(0, 0.01, 3)))
        racers = [JAX, replace(TORCH, start_factors=factors)]
        nights.append(make_document(racers, duel_run=f"{night:016x}", campaign="real"))
    store_history(engine, state, nights[:3])
    (row,) = measure_calibration(engine)["smallest"]
    assert (row["nights"], row["starts"], row["smallest"]) == (3, 9, None)
    store_history(engine, state, nights)
    (row,) = measure_calibration(engine)["smallest"]
    assert row["series"] == "mlp tiny: jax-jit against torch-compile"
    assert 0.01 < row["smallest"] < 0.08


def test_only_the_newest_duel_runs_show_the_smallest_effect(
    state: State, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = []
    for night in range(6):
        nights.append(make_document([JAX, TORCH], duel_run=f"{night:016x}", campaign="real"))
        began = f"2026-11-{night + 1:02}T03:00:00+00:00"
        nights[-1]["allocation"] |= dict.fromkeys(("started_at", "ended_at"), began)
    store_history(engine, state, nights)
    for most, expected in ((1, 1), (4, 4), (6, 6), (7, 6)):
        monkeypatch.setattr(calibration, "_MOST_RUNS", most)
        (row,) = measure_calibration(engine)["smallest"]
        assert row["nights"] == expected
    sent = record_statements(engine, lambda: measure_calibration(engine))
    (logs,) = [each for each in sent if "start_log_ratios" in each[0]]
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {logs[0]}", logs[1]).all()
        assert "duel_run USING INDEX ix_duel_run_started_at" in str(steps[0]), steps
