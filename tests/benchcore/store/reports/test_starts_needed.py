"""How many starts a change needs, from stored nights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import run_here
from result_documents import JAX, TORCH, make_document
from stored_histories import store_history

from benchcore.planning.profiles import PROFILES, Match, Profile
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.starts_needed import list_starts_needed


def test_starts_and_minutes_come_from_the_pairs_own_nights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    state, rng = open_state(tmp_path), np.random.default_rng(2)
    engine = open_database(state.database_url)
    (none,) = list_starts_needed(engine, {("mlp", "tiny")}, 0.02)
    assert (none.pair, none.num_nights, none.reason) == (None, 0, "no history yet")
    for night in range(8):
        factors = tuple(np.exp(rng.normal(0.05 * (night % 2), 0.01, 3)))
        racers = [JAX, replace(TORCH, start_factors=factors)]
        store_history(engine, state, [make_document(racers, duel_run=f"{night:016x}")])
    (none,) = list_starts_needed(engine, {("mlp", "another")}, 0.02)
    assert none.reason == "no history yet"

    (large,) = list_starts_needed(engine, {("mlp", "tiny")}, math.log1p(0.2))
    assert (large.num_nights, large.starts, large.reason) == (8, 5, "")
    assert large.spread is not None and large.spread.starts == pytest.approx(0.01, rel=0.5)
    (small,) = list_starts_needed(engine, {("mlp", "tiny")}, math.log1p(0.02))
    assert small.starts is not None and 5 < small.starts < 20
    assert small.minutes is not None and large.minutes is not None
    assert small.minutes / large.minutes == pytest.approx(small.starts / large.starts)
    assert "only a confirmation shows it" in small.reason
    (tiny,) = list_starts_needed(engine, {("mlp", "tiny")}, 0.0005)
    assert (tiny.starts, tiny.reason) == (None, "100 starts would not show it")

    shown = run_here("plan", "--profile", "laptop", "--detect", "0.02", "--state", str(tmp_path))
    assert "No pair of this profile has been measured yet" in shown.stdout


def test_cases_with_and_without_a_history_are_objects_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    state = open_state(tmp_path)
    racers = [JAX, replace(TORCH, start_factors=(1.0, 1.01, 0.99))]
    for night in range(4):
        document = make_document(racers, duel_run=f"{night:016x}")
        store_history(open_database(state.database_url), state, [document])
    arms = PROFILES["laptop"]().matches[-1].arms
    matches = (
        Match(workload="mlp", case="tiny", arms=arms, expected_s=1),
        Match(workload="mlp", case="another", arms=arms, expected_s=1),
        Match(workload="noop", case="bare", arms=arms[:1], expected_s=1),  # no pair
    )
    profile = Profile(name="two", matches=matches)
    monkeypatch.setattr("flows.cli.plan.load_profile", lambda name: profile)

    asked = ("plan", "--detect", "2%", "--state", str(tmp_path))
    measured, other = json.loads(run_here(*asked, "--json").stdout)
    assert (measured["case"], measured["num_nights"]) == ("tiny", 4)
    assert measured["starts"] > 1 and 0 < measured["spread"]["starts"] < 0.1
    assert (other["case"], other["pair"], other["reason"]) == ("another", None, "no history yet")
    shown = run_here(*asked).stdout
    assert "2.0 %" in shown and "jax-jit against torch-compile" in shown
    assert "mlp another" in shown and "no history yet" in shown


def test_each_device_has_its_own_spread_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model with another number of CPUs is another device."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    wide = {"count": 64, "fingerprint": "f" * 16}
    gpu = {"kind": "gpu", "model": "Some GPU", "fingerprint": "e" * 16}
    for index, (noise, device) in enumerate(((0.001, {}), (0.05, wide), (0.03, gpu))):
        for night in range(8):
            factors = tuple(np.exp(np.random.default_rng(night).normal(0.0, noise, 3)))
            racers = [JAX, replace(TORCH, start_factors=factors)]
            document = make_document(racers, duel_run=f"{8 * index + night:016x}")
            document["allocation"]["device"] |= device
            store_history(engine, state, [document])
    found = list_starts_needed(engine, {("mlp", "tiny")}, 0.05)
    starts = {each.device_name: each.starts for each in found}
    assert {each.num_nights for each in found} == {8}
    (steady, on_gpu, unsteady) = (
        starts.pop(name) for name in ("Some CPU, 1 CPU", "Some GPU", "Some CPU, 64 CPUs")
    )
    assert not starts and steady < on_gpu < unsteady

    arms = PROFILES["laptop"]().matches[-1].arms
    match = Match(workload="mlp", case="tiny", arms=arms, expected_s=1)
    profile = Profile(name="one", matches=(match,))
    monkeypatch.setattr("flows.cli.plan.load_profile", lambda name: profile)
    shown = run_here("plan", "--detect", "2%", "--state", str(tmp_path)).stdout
    assert "Some CPU, 64 CPUs" in shown and "Some GPU" in shown and "device" in shown
    assert "f" * 16 not in shown


@pytest.mark.parametrize("given", ["7", "101%", "0", "nan", "two", "%", "2%%", ""])
def test_what_is_no_change_is_refused(given: str) -> None:
    done = run_here("plan", "--detect", given)
    assert done.returncode == 2
    assert f"wanted a change from 0.01 % to 100 % after --detect, got '{given}'" in done.stderr


def test_a_fresh_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    asked = ("plan", "--detect", "0.02", "--state", str(tmp_path / "state"))
    done = run_here(*asked)
    assert done.returncode == 0 and "has been measured yet" in done.stdout
    listed = json.loads(run_here(*asked, "--json").stdout)
    assert len(listed) > 2 and {each["reason"] for each in listed} == {"no history yet"}
    assert not any(tmp_path.iterdir())
