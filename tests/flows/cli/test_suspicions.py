"""`deadheat suspicions` on a state folder with a history."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from result_documents import make_history, plant_amounts
from stored_histories import open_history
from typer.testing import CliRunner

from benchcore.state import open_state
from flows.cli.main import app, main

LOGS = np.random.default_rng(4).normal(0.2, 0.005, 24)


def _run(state: Path, *arguments: str) -> str:
    command = ["suspicions", "--state", str(state), *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def _store(root: Path, logs: np.ndarray) -> None:
    open_history(open_state(root), make_history(logs.tolist())).dispose()


def test_a_shift_is_reported_as_text_and_json(tmp_path: Path) -> None:
    _store(tmp_path, LOGS - 0.06 * (np.arange(24) >= 16))
    printed = " ".join(_run(tmp_path).split())
    assert "mlp tiny: jax-jit against torch-compile" in printed
    assert re.search(r"open .* 2026-01-17 .* shift .* \u2212[56]\.\d %", printed), printed
    assert "9 series, suspicions open: 1" in printed
    answer = json.loads(_run(tmp_path, "--json"))
    (found,) = answer["suspicions"]
    assert found["low"] < found["ratio"] < found["high"] < 1
    assert {each["metric"]: each["nights"] for each in answer["series"]} == {
        "median_step_ns": 24,
        "process_peak_bytes": 24,
        "program_ops": 24,
        "host_dispatch_ns": 24,
        "trace_s": 24,
        "lower_s": 24,
        "first_run_s": 24,
        "cold_compile_s": 24,
        "warm_compile_s": 24,
    }


def test_the_conditions_that_changed_with_a_shift_are_listed(tmp_path: Path) -> None:
    documents = make_history((LOGS - 0.06 * (np.arange(24) >= 16)).tolist())
    for document in documents[16:]:
        document["allocation"]["host"]["system"] = "Linux 6.8"
    open_history(open_state(tmp_path), documents).dispose()
    printed = " ".join(_run(tmp_path).split())
    assert "suspicion 1, conditions that changed: kernel Linux 6.1 to Linux 6.8" in printed


def test_short_and_missing_series_are_reported(tmp_path: Path) -> None:
    assert "0 series, suspicions open: 0" in _run(tmp_path)
    _store(tmp_path, LOGS[:3])
    printed = _run(tmp_path)
    assert "torch-compile: 3 nights, 10 are needed" in printed
    assert printed.count("nights, 10 are needed") == 1


def test_one_metric_is_listed_alone(tmp_path: Path) -> None:
    documents = make_history(LOGS.tolist())
    seconds = 2.0 * np.exp(LOGS - 0.2 + 0.3 * (np.arange(24) >= 16))
    plant_amounts(documents, 0, "cold_compile_s", seconds.tolist())
    open_history(open_state(tmp_path), documents).dispose()
    (found,) = json.loads(_run(tmp_path, "--json"))["suspicions"]
    assert (found["metric"], found["heading"]) == ("cold_compile_s", "Compilation, caches empty")
    assert json.loads(_run(tmp_path, "--metric", "median_step_ns", "--json"))["suspicions"] == []
    answer = json.loads(_run(tmp_path, "--metric", "cold_compile_s", "--json"))
    assert [each["id"] for each in answer["suspicions"]] == [found["id"]]
    assert [each["metric"] for each in answer["series"]] == ["cold_compile_s"]


def test_an_unknown_metric_is_refused_with_the_names_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["deadheat", "suspicions", "--metric", "speed", "--state", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "no metric 'speed' is tracked; choose one of median_step_ns, latency_p95_ns" in printed


def test_two_modes_are_shown_and_are_no_suspicion(tmp_path: Path) -> None:
    upper = np.random.default_rng(8).random(24) < 0.4
    _store(tmp_path, LOGS + 0.05 * upper)
    printed = " ".join(_run(tmp_path).split())
    assert f"between two levels: {100 * upper.mean():.0f} % of nights are 5." in printed
    answer = json.loads(_run(tmp_path, "--json"))
    (modes,) = answer["modes"]
    assert modes["share"] == upper.mean()
    assert modes["ratio"] == pytest.approx(1.05, abs=0.01)
    assert modes["series"] == "mlp tiny: jax-jit against torch-compile"
    assert [each for each in answer["suspicions"] if each["trigger"] == "shift"] == []
