"""Calibration runs in real processes, from the plan through a night to the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_here
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from typer.testing import CliRunner

from benchcore.planning.matrix import save_plan
from benchcore.planning.profiles import Match, load_profile
from benchcore.planning.tracks import STDLIB
from benchcore.running.plans import draft_plan
from flows.calibrate import calibrate
from flows.cli.main import app

RUN = Match(workload="digest", case="tiny_op", arms=(STDLIB, STDLIB), expected_s=2)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, prefect_api: None) -> Iterator[Path]:
    """An A/A trial, whose first two nights were missed, and one with 5 % more work on one side,
    measured as a night's duels are."""
    root = tmp_path_factory.mktemp("state")
    ci = load_profile("ci")
    limits = replace(ci.limits, warm_up_limit_s=0.1)
    profile = replace(ci, matches=(), calibration_matches=(RUN,), limits=limits)
    plan = draft_plan(profile, site="local", campaign="night", calibration=range(2, 10))
    save_plan(plan, root / "plan.json")
    done = run_here("run", str(root / "plan.json"), "--json", "--state", str(root))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ratios"] == []
    yield root


def _run(state: Path, *arguments: str) -> str:
    command = ["calibration", "--state", str(state), *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_runs_with_and_without_real_extra_work_are_counted_by_their_outcome(
    state: Path,
) -> None:
    found = json.loads(_run(state, "--json"))
    if found["lost"]:
        assert all("disturbed" in each for each in found["lost"])
        pytest.skip("others used this machine throughout a start")
    assert found["unfinished"] == 0
    quiet, slowed = found["runs"]
    assert (quiet["percent"], quiet["starts"]) == (0, 3)
    assert (slowed["percent"], slowed["starts"]) == (5, 5)
    rates = {row["rate"]: row for row in found["rates"]}
    false, recall = rates["false alarms"], rates["+5 % found"]
    assert (false["hits"], false["total"]) == (int(quiet["alarm"]), 1)
    assert (recall["hits"], recall["total"]) == (int(slowed["outcome"] != "missed"), 1)
    assert false["too_few"] and recall["too_few"]
    # By how much depends on the machine's load; `test_building.py` counts the work itself.
    assert isinstance(slowed["measured"], float) and quiet["measured"] is None


def test_the_console_and_the_page_report_error_rates_and_that_runs_are_few(state: Path) -> None:
    if json.loads(_run(state, "--json"))["lost"]:
        pytest.skip("others used this machine throughout a start")
    printed = " ".join(_run(state).split())
    assert printed.startswith("2 calibration runs judged.")
    assert "too few runs; at least 10 are needed" in printed
    data = state / "site" / "data"
    health = (data / "pages" / "health.js").read_text()
    assert "How often are these alerts wrong?" in health
    assert "digest tiny_op: stdlib and stdlib" in health
    # The slowed copy itself is in none of the campaign's tables.
    assert "stdlib-slowed-5" not in (data / "campaigns" / "night.js").read_text()


def test_the_flow_of_the_deployment_measures_more_runs_and_reports_all_outcomes(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, str, str]] = []
    monkeypatch.setenv("DEADHEAT_STATE", str(state))
    monkeypatch.setattr(
        "flows.calibrate.run_calibration",
        lambda count, context, measurer: calls.append((count, context.profile.name, context.site)),
    )
    done = calibrate(runs=4, return_state=True)
    assert calls == [(4, "laptop", "local")]
    assert done.is_completed() and done.message == " ".join(_run(state).splitlines()[0].split())
    with get_client(sync_client=True) as client:
        tables = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["calibration"]))
        )
    table = max(tables, key=lambda each: str(each.created))
    rates = {row["what"]: row for row in json.loads(str(table.data))}
    judged = 0 if json.loads(_run(state, "--json"))["lost"] else 1
    assert int(rates["false alarms"]["count"].split()[-1]) >= judged, rates


def test_the_flow_of_the_deployment_refuses_bad_input(
    tmp_path: Path, prefect_api: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    refused = calibrate(runs=1, profile="ci", return_state=True)
    assert refused.is_failed() and "wanted a profile with calibration runs" in str(refused.message)


def test_without_calibration_runs_every_rate_is_unknown(tmp_path: Path) -> None:
    assert _run(tmp_path).startswith("No calibration run judged.")
    found = json.loads(_run(tmp_path, "--json"))
    assert all(row["share"] is None for row in found["rates"])


def test_a_profile_without_calibration_runs_is_bad_input(tmp_path: Path) -> None:
    command = ["calibration", "--measure", "1", "--profile", "ci", "--state", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert "wanted a profile with calibration runs, got 'ci'" in str(result.exception)
