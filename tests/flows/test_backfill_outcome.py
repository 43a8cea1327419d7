"""What a backfill judges if not all of its campaign was measured."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here

from benchcore.errors import CampaignIncompleteError
from tasks import experiment_runs

FLOW = importlib.import_module("flows.backfill")
pytestmark = pytest.mark.usefixtures("prefect_api")


def _run(
    patched: pytest.MonkeyPatch, root: Path, outcome: dict[str, Any] | None
) -> tuple[str, int]:
    """The message of a run that failed after a duel was lost, and how often it judged."""
    judged = list[str]()

    def run_campaign(*_: object) -> None:
        raise CampaignIncompleteError("Slurm job 7 lost its node", outcome)

    def judge(*given: object) -> list[Any]:
        judged.append(str(given[1]))
        return []

    patched.setenv("DEADHEAT_STATE", str(root))
    patched.setattr(experiment_runs, "is_planned", lambda *_: True)
    patched.setattr(experiment_runs, "run_campaign", run_campaign)
    patched.setattr(experiment_runs, "judge_backfill", judge)
    patched.setattr(experiment_runs, "describe_measured", lambda *_: "jax 1.4, 1.2")
    ended = FLOW.backfill("jax", return_state=True)
    assert ended.is_failed()
    return str(ended.message), len(judged)


def test_a_lost_duel_fails_the_run_and_the_rest_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, times = _run(monkeypatch, tmp_path, {"failures": []})
    assert times == 1
    assert text == "jax 1.4, 1.2; not measured completely: Slurm job 7 lost its node"


def test_nothing_is_judged_where_no_duel_left_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, times = _run(monkeypatch, tmp_path, None)
    assert times == 0 and "Slurm job 7 lost its node" in text


def test_the_command_judges_the_rest_and_then_names_the_lost_duel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = importlib.import_module("flows.cli.backfill")
    outcome = {"void": "", "failures": [], "dashboard": "site/index.html"}

    def lose(*_: object) -> None:
        raise CampaignIncompleteError("Slurm job 7 lost its node", outcome)

    monkeypatch.setattr(command, "is_planned", lambda *_: True)
    monkeypatch.setattr(command, "load_campaign", lambda *_: None)
    monkeypatch.setattr(command, "measure_plan", lose)
    monkeypatch.setattr(command, "judge_backfill", lambda *_: [])
    ended = run_here("backfill", "jax", "--state", str(tmp_path))
    assert ended.returncode == 1
    assert "Changes by versions of jax" in ended.stdout
    assert "Slurm job 7 lost its node" in ended.stderr
