"""The progress display: the line of each event, and the time left."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from benchcore.planning.matrix import Plan, PlannedContender, PlannedDuel, load_plan
from benchcore.protocol import DuelLimits
from benchcore.running.progress import ProgressLog, ProgressReader
from flows.cli.progress_display import Forecast, describe_now, follow_campaign, format_left


def _duel(number: int, expected_s: float = 100.0) -> PlannedDuel:
    contender = PlannedContender(name="jax-jit-0.12.0", arm="jax-jit", release="jax", settings={})
    return PlannedDuel(
        hash=f"{number:016x}",
        duel_run=f"{number:016x}",
        workload="mlp",
        case=f"case{number}",
        track="default",
        device="cpu",
        seed=1,
        limits=DuelLimits(starts=2, max_starts=4, rounds=4, max_rounds=8),
        expected_s=expected_s,
        contenders=(contender,),
    )


@pytest.fixture
def forecast() -> Forecast:
    return Forecast(duels={duel.duel_run: duel for duel in (_duel(1), _duel(2))})


def _event(**event: object) -> dict[str, object]:
    return {"time": 0.0, "duel_run": _duel(1).duel_run, "event": "duel", **event}


def test_all_time_is_left_at_the_beginning(forecast: Forecast) -> None:
    assert forecast.left_s(0.0) == 200.0


def test_a_slow_machine_increases_the_time_left(forecast: Forecast) -> None:
    assert forecast.follow(_event(what="begun")) == "mlp case1: 1 contenders, 2 to 4 starts"
    forecast.follow(_event(event="round", start=0, round=3, time=100.0))
    assert forecast.progress_s == pytest.approx(50.0)
    assert forecast.left_s(100.0) == pytest.approx(300.0)
    assert forecast.follow(_event(what="done", time=200.0)) == "mlp case1: done in 200 s"
    assert forecast.num_done == 1
    assert forecast.left_s(200.0) == pytest.approx(200.0)


def test_parallel_shards_reduce_the_time_left() -> None:
    forecast = Forecast(duels={duel.duel_run: duel for duel in map(_duel, range(20))})
    assert forecast.left_s(0.0) == 2000.0
    forecast.follow(_event(event="shards", side_by_side=0, time=0.0))  # they wait in the queue
    forecast.follow(_event(event="shards", side_by_side=4, time=50.0))
    assert forecast.left_s(50.0) == 500.0
    for number in range(4):
        forecast.follow(_event(what="done", duel_run=_duel(number).duel_run, time=250.0))
    # Twice as slow as expected, and still four at a time.
    assert forecast.left_s(250.0) == pytest.approx(800.0)


def test_starts_beyond_the_fewest_never_move_the_bar_back(forecast: Forecast) -> None:
    forecast.follow(_event(what="begun"))
    shares = []
    for start in range(4):
        forecast.follow(_event(event="stage", contender="jax-jit-0.12.0", start=start, stage="x"))
        shares.append(forecast.share)
        for number in range(6):
            event = _event(event="round", start=start, round=number)
            forecast.follow(event)
            shares.append(forecast.share)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert describe_now(event, forecast) == "mlp case1, start 4 of at most 4: round 6 of at most 8"


def test_a_resumed_duel_does_not_count_as_speed(forecast: Forecast) -> None:
    assert forecast.follow(_event(what="resumed")) == "mlp case1: measured before"
    assert forecast.follow(_event(what="done")) is None
    assert forecast.left_s(0.0) == pytest.approx(100.0)


def test_a_duel_that_waits_for_the_device_is_reported(forecast: Forecast) -> None:
    event = _event(event="waiting")
    assert (forecast.follow(event), describe_now(event, forecast)) == (None, None)
    forecast.follow(_event(what="begun"))
    line = "mlp case1: waits for another process that measures on this device"
    assert forecast.follow(event) == line
    assert describe_now(event, forecast) == "mlp case1: waits for the device"


def test_the_stage_is_shown_in_words(forecast: Forecast) -> None:
    forecast.follow(_event(what="begun"))
    event = _event(event="stage", contender="jax-jit-0.12.0", start=1, stage="warm_up")
    forecast.follow(event)
    assert (
        describe_now(event, forecast) == "mlp case1, start 2 of at least 2: jax-jit-0.12.0, warm up"
    )
    after = _event(event="evidence", start=1)
    assert describe_now(after, forecast) == (
        "mlp case1, start 2 of at least 2: evidence of the timed steps"
    )
    passes = _event(event="passes")
    assert describe_now(passes, forecast) == "mlp case1: memory, profile and energy"
    failed = _event(event="failed", contender="jax-jit-0.12.0", start=0, reason="[red]boom")
    assert forecast.follow(failed) == "jax-jit-0.12.0 failed: [red]boom"


def test_the_time_left_does_not_flicker() -> None:
    assert format_left(3.0) == "about 5 s left"
    assert format_left(62.0) == "about 1 min 05 s left"


def test_a_campaign_is_followed_from_its_file(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / "progress.jsonl")
    log.append(event="duel", what="begun", duel_run=_duel(1).duel_run)
    reader = ProgressReader(log.path, from_now=True)
    plan = Plan(
        schema=1,
        campaign="night",
        profile="ci",
        site="local",
        releases={},
        duels=(_duel(1), _duel(2)),
        notes=(),
    )
    written = io.StringIO()
    console = Console(file=written, width=100)
    with follow_campaign(lambda: plan, reader, console):
        log.append(event="environment", request="jax@newest", text="built [bold]it")
        log.append(event="duel", what="begun", duel_run=_duel(2).duel_run)
        time.sleep(0.4)
        log.append(event="duel", what="done", duel_run=_duel(2).duel_run)
    printed = written.getvalue()
    assert "jax@newest: built [bold]it" in printed
    assert "mlp case2: done in " in printed
    assert "case1" not in printed


def test_a_damaged_plan_is_left_to_the_campaign_to_report(tmp_path: Path) -> None:
    """No traceback of the display's thread beside it: pytest would fail for one."""
    (tmp_path / "plan.json").write_text('{"campaign": ')
    reader = ProgressReader(tmp_path / "progress.jsonl", from_now=False)
    with follow_campaign(
        lambda: load_plan(tmp_path / "plan.json"), reader, Console(file=io.StringIO())
    ):
        time.sleep(0.3)
