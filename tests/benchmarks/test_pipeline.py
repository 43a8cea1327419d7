"""Every second of a campaign is accounted for once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline import (
    LATENCIES,
    TIMED,
    account,
    account_contenders,
    draw_stages,
    expect_narrow,
    run_nights,
)
from result_documents import JAX, TORCH, make_document


def test_every_second_belongs_to_one_stage() -> None:
    events: list[dict[str, Any]] = [
        {"time": 0.0, "event": "campaign"},
        {"time": 5.0, "event": "environment"},
        {"time": 9.0, "event": "duel", "what": "begun"},
        {"time": 9.5, "event": "stage", "stage": "import"},
        {"time": 11.5, "event": "stage", "stage": "compile"},
        {"time": 14.5, "event": "round"},
        {"time": 74.5, "event": "evidence", "start": 0},
        {"time": 80.5, "event": "passes"},
        {"time": 94.5, "event": "duel", "what": "done"},
        {"time": 95.0, "event": "something new"},
        {"time": 96.0, "event": "campaign"},
    ]
    document = make_document()
    seconds = account(events, [document])
    starts = [start for contender in document["contenders"] for start in contender["starts"]]
    timed = sum(block["elapsed_ns"] for start in starts for block in start["blocks"]) / 1e9
    assert seconds[TIMED] == pytest.approx(timed) and timed > 0
    latencies_ns = sum(sum(start["latency_ns"] or ()) for start in starts)
    assert seconds[LATENCIES] == pytest.approx(latencies_ns / 1e9)
    assert (seconds["planning"], seconds["environments"], seconds["import"]) == (5.0, 4.0, 2.0)
    assert seconds["evidence after the blocks"] == 6.0
    assert seconds["passes: memory, profile, energy"] == 14.0
    assert seconds["something new"] == 1.0
    assert sum(seconds.values()) == pytest.approx(96.0)


def test_every_contender_has_its_stages_and_its_timed_blocks() -> None:
    document = make_document()
    starts = document["contenders"][0]["starts"]
    for start in starts:
        start["stages"] = {"import": 1.0, "compile": None, "warm_up": 0.5}
    timed = sum(block["elapsed_ns"] for start in starts for block in start["blocks"]) / 1e9
    found = account_contenders([document, document])
    own = found[document["contenders"][0]["name"]]
    assert own["import"] == 2.0 * len(starts)
    assert own["warm_up"] == 1.0 * len(starts)
    assert own[TIMED] == pytest.approx(2 * timed, abs=0.05)
    assert len(found) == len(document["contenders"])


def _spread_document(factors: tuple[float, ...]) -> dict[str, Any]:
    document = make_document((JAX, replace(TORCH, start_factors=factors)), starts=len(factors))
    for contender in document["contenders"]:
        for index, start in enumerate(contender["starts"]):
            start["started_at"] = f"2026-01-02T03:{4 + index:02}:00+00:00"
    return document


def test_a_pair_that_spreads_more_needs_more_starts() -> None:
    (steady,) = expect_narrow(_spread_document((1.0, 1.002, 0.998)))
    (unsteady,) = expect_narrow(_spread_document((1.0, 1.03, 0.97)))
    assert steady["starts"]["1%"] == steady["seconds"]["1%"] / 60
    assert unsteady["starts"]["1%"] > unsteady["starts"]["2%"] > steady["starts"]["1%"]
    spread = unsteady["spread"]
    assert unsteady["starts"]["2%"] == pytest.approx((1.96 * spread / 0.02) ** 2, abs=4)
    (hopeless,) = expect_narrow(_spread_document((1.0, 3.0, 0.4)))
    assert hopeless["starts"] == {"1%": None, "2%": None} == hopeless["seconds"]


def test_one_start_shows_no_spread() -> None:
    assert expect_narrow(_spread_document((1.0,))) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_second_night_runs_in_the_same_clone_and_is_stored_with_the_first(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    ran: list[tuple[list[str], Path | None, str | None]] = []

    def run(
        command: Sequence[str],
        *,
        check: bool,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        assert check
        ran.append(([*map(str, command)], cwd, env and env.get("UV_CACHE_DIR")))
        if cwd is not None:
            _write_night(cwd, "another" if "--campaign" in command else "nightly-1")

    monkeypatch.setattr(subprocess, "run", run)
    row = run_nights("cold", again)
    (_, (first, clone, cache), *rest) = ran
    assert clone is not None and not clone.exists()
    assert (row["cache"], row["campaign"], first) == ("cold", "nightly-1", ["make", "nightly"])
    assert cache == str(clone.parent / "cache")
    if not again:
        assert "again" not in row and not rest
        return
    command = [".venv/bin/deadheat", "nightly", "--campaign", "another"]
    assert rest == [(command, clone, cache)]
    assert (row["again"]["campaign"], row["again"]["duels"]) == ("another", 1)
    assert row["again"]["logged_s"] == row["logged_s"] == 10.0
    assert 0 < row["again"]["share_in_timed_blocks"] < 1


def _write_night(clone: Path, name: str) -> None:
    """What `deadheat nightly` leaves of a campaign of one duel that takes 10 s."""
    for folder in ("site", f"campaigns/{name}", f"spool/{name}"):
        (clone / "state" / folder).mkdir(parents=True, exist_ok=True)
    (clone / "state" / "site" / "index.html").touch()
    events = [{"time": 0.0, "event": "round"}, {"time": 10.0, "event": "campaign"}]
    log = "".join(json.dumps(event) + "\n" for event in events)
    (clone / "state" / "campaigns" / name / "progress.jsonl").write_text(log)
    document = json.dumps(make_document())
    (clone / "state" / "spool" / name / "duel.json").write_text(document)


def test_the_chart_stacks_every_second_of_the_night_and_of_each_contender(tmp_path: Path) -> None:
    night = {"warm up": 2.0, TIMED: 3.0, "rest of turns": -0.1}
    contenders = {"jax": {"warm up": 1.5, TIMED: 1.0}, "torch": {"warm up": 0.5, TIMED: 2.0}}
    found = {"campaign": "nightly-1", "seconds": night, "contenders": contenders}
    chart = draw_stages(found)
    bars = [(row["bar"], row["stage"], row["seconds"]) for row in chart.to_dict()["data"]["values"]]
    assert bars[:3] == [
        ("nightly-1", TIMED, 3.0),
        ("nightly-1", "warm up", 2.0),
        ("nightly-1", "rest of turns", 0.0),
    ]
    assert {who: sum(each for bar, _, each in bars if bar == who) for who in contenders} == {
        "jax": 2.5,
        "torch": 2.5,
    }
    chart.save(tmp_path / "night.svg")
    assert "warm up" in (tmp_path / "night.svg").read_text()
