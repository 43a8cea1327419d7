"""`deadheat suspicions` on a state folder with a history."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from kept_histories import open_history
from result_documents import make_history
from typer.testing import CliRunner

from benchcore.state import open_state
from flows.cli.main import app

LOGS = np.random.default_rng(4).normal(0.2, 0.005, 24)


def _run(state: Path, *arguments: str) -> str:
    command = ["suspicions", "--state", str(state), *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def _keep(root: Path, logs: np.ndarray) -> None:
    open_history(open_state(root), make_history(logs.tolist())).dispose()


@pytest.fixture(autouse=True)
def _own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)


def test_a_shift_is_reported_as_text_and_json(tmp_path: Path) -> None:
    _keep(tmp_path, LOGS - 0.06 * (np.arange(24) >= 16))
    printed = " ".join(_run(tmp_path).split())
    assert "mlp tiny: jax-jit against torch-compile" in printed
    assert re.search(r"open .* 2026-01-17 .* shift .* -[56]\.\d%", printed), printed
    assert "1 series, suspicions open: 1" in printed
    answer = json.loads(_run(tmp_path, "--json"))
    (found,) = answer["suspicions"]
    assert found["low"] < found["ratio"] < found["high"] < 1
    assert [each["nights"] for each in answer["series"]] == [24]


def test_short_and_missing_series_are_reported(tmp_path: Path) -> None:
    assert "0 series, suspicions open: 0" in _run(tmp_path)
    _keep(tmp_path, LOGS[:3])
    assert "torch-compile: 3 nights of the 10 it takes" in _run(tmp_path)


def test_two_modes_are_shown_and_are_no_suspicion(tmp_path: Path) -> None:
    upper = np.random.default_rng(8).random(24) < 0.4
    _keep(tmp_path, LOGS + 0.05 * upper)
    printed = " ".join(_run(tmp_path).split())
    assert f"between two levels: {upper.mean():.0%} of nights are 5." in printed
    answer = json.loads(_run(tmp_path, "--json"))
    (modes,) = answer["modes"]
    assert modes["share"] == upper.mean()
    assert modes["ratio"] == pytest.approx(1.05, abs=0.01)
    assert modes["series"] == "mlp tiny: jax-jit against torch-compile"
    assert [each for each in answer["suspicions"] if each["trigger"] == "shift"] == []
