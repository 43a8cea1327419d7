"""How many starts a change needs, from stored nights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import run_here
from kept_histories import keep_history
from result_documents import JAX, TORCH, make_document

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.starts_needed import list_starts_needed


def test_starts_and_minutes_come_from_the_pairs_own_nights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    state, rng = open_state(tmp_path), np.random.default_rng(2)
    engine = open_database(state.database_url)
    assert list_starts_needed(engine, {("mlp", "tiny")}, 0.02) == []
    for night in range(8):
        factors = tuple(np.exp(rng.normal(0.05 * (night % 2), 0.01, 3)))
        racers = [JAX, replace(TORCH, start_factors=factors)]
        keep_history(engine, state, [make_document(racers, duel_run=f"{night:016x}")])
    assert list_starts_needed(engine, {("mlp", "another")}, 0.02) == []

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
    listed = run_here("plan", "--detect", "0.02", "--json", "--state", str(tmp_path))
    assert json.loads(listed.stdout) == []
    assert run_here("plan", "--detect", "7").returncode == 2
