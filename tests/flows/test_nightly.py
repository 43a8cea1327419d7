"""The main job from the command line: killed half-way, resumed, repeated, and looked at."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    TaskRunFilter,
    TaskRunFilterName,
)
from result_documents import spool_ceiling

from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from dashboards.website.files import WebsiteFiles

pytestmark = [pytest.mark.provisions, pytest.mark.usefixtures("prefect_api")]
DEADHEAT = str(Path(sys.executable).parent / "deadheat")
CAMPAIGN = "killed-night"
COMMAND = ("nightly", "--profile", "ci", "--campaign", CAMPAIGN, "--json")
TASKS = ["measure-noop bare", "measure-mlp tiny_infer", "environment-jax@previous"]


@pytest.fixture(scope="module")
def killed(
    session_state: State,
    prefect_api: None,
    framework_environment: Callable[[str], EnvironmentRecord],
) -> dict[str, bytes]:
    """Start the night, kill it with SIGKILL in its second duel; the documents left by then."""
    for request in ("jax@newest", "jax@previous", "torch@newest", "torch@previous"):
        framework_environment(request)
    spool_ceiling(session_state)
    log = session_state.campaigns / CAMPAIGN / "progress.jsonl"
    command = [DEADHEAT, *COMMAND, "--state", str(session_state.root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _wait_for(lambda: _num_events(log, "duel", "done") == 1 and _num_events(log, "round") > 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    documents = _documents(session_state)
    assert len(documents) == 1
    _wait_for(lambda: not _cells_running(session_state))
    return documents


@pytest.fixture(scope="module")
def resumed(killed: dict[str, bytes], session_state: State) -> dict[str, Any]:
    """The same command again; what it printed."""
    return _run_json(COMMAND, session_state)


def test_a_killed_night_finishes_without_measuring_twice_or_losing_a_result(
    killed: dict[str, bytes], resumed: dict[str, Any], session_state: State
) -> None:
    documents = _documents(session_state)
    assert len(documents) == 2
    for name, content in killed.items():
        assert documents[name] == content
    log = session_state.campaigns / CAMPAIGN / "progress.jsonl"
    assert _num_events(log, "duel", "resumed") == 1
    with sqlite3.connect(session_state.root / "deadheat.db") as database:
        rows = database.execute("SELECT id FROM duel_run WHERE campaign = ?", [CAMPAIGN])
        assert {f"{row[0]}.json" for row in rows} == set(documents)
    assert not list(session_state.spool.rglob("*.part"))


def test_the_night_compares_frameworks_and_versions(
    resumed: dict[str, Any], session_state: State
) -> None:
    """Each framework's newest and previous versions."""
    kinds = Counter(ratio["kind"] for ratio in resumed["ratios"])
    assert kinds == {"cross_framework": 4, "cross_version": 2}
    for ratio in resumed["ratios"]:
        assert ratio["counts"], ratio["reason"]
        if "degraded" not in ratio["reason"]:  # by other users of this machine
            assert ratio["low"] <= ratio["speedup"] <= ratio["high"]
            assert ratio["num_starts"] == 2
    assert Path(resumed["dashboard"]).is_file()
    shown = WebsiteFiles(session_state.website).read(f"campaigns/{CAMPAIGN}")
    assert shown["name"] == CAMPAIGN and shown["sentence"]


def test_prefect_shows_each_duel_as_a_task_run_and_keeps_the_artifacts(
    resumed: dict[str, Any],
) -> None:
    assert resumed
    with get_client(sync_client=True) as client:
        names = TaskRunFilterName(any_=TASKS)
        tasks = client.read_task_runs(task_run_filter=TaskRunFilter(name=names))
        keys = ArtifactFilterKey(any_=[f"ratios-{CAMPAIGN}", f"dashboard-{CAMPAIGN}"])
        artifacts = client.read_artifacts(artifact_filter=ArtifactFilter(key=keys))
    assert {each.name for each in tasks} == set(TASKS)
    found = {(each.key, each.type) for each in artifacts}
    assert found == {(f"ratios-{CAMPAIGN}", "table"), (f"dashboard-{CAMPAIGN}", "markdown")}


def test_each_step_of_a_night_can_be_run_again_alone(
    resumed: dict[str, Any], session_state: State
) -> None:
    before = _documents(session_state)
    ingested = _run_json(("ingest", "--json"), session_state)
    assert ingested["ingested"] == []
    assert ingested["rejected"] == []
    checked = _run_json(("check", CAMPAIGN, "--json"), session_state)
    assert all(each["severity"] == "warning" for each in checked["failed_checks"])
    reported = _run_json(("report", CAMPAIGN, "--json"), session_state)
    assert [r["speedup"] for r in reported["ratios"]] == [r["speedup"] for r in resumed["ratios"]]
    assert all(ratio["fair"] is not None for ratio in reported["ratios"])
    for contender in reported["contenders"]:
        assert contender["latency_min_ns"] <= contender["latency_p50_ns"]
        assert contender["latency_p50_ns"] <= contender["latency_max_ns"]
        assert contender["latency_samples"] >= 50
        assert contender["process_peak_bytes"] >= contender["process_baseline_bytes"]
        assert {"latency_p99_ns", "latency_sd_ns", "gross_mj", "net_mj"} <= set(contender)
    assert _documents(session_state) == before


def test_a_document_that_was_tampered_with_is_rejected_and_reported(
    resumed: dict[str, Any], session_state: State
) -> None:
    bad = session_state.spool / CAMPAIGN / "0000000000000000.json"
    bad.write_text('{"schema": 1}')
    done = run_here("ingest", "--json", "--state", str(session_state.root))
    assert done.returncode == 1
    (rejection,) = json.loads(done.stdout)["rejected"]
    assert "0000000000000000" in str(rejection)
    assert not bad.exists()


def _run_json(command: tuple[str, ...], state: State) -> Any:
    done = run_here(*command, "--state", str(state.root))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _documents(state: State) -> dict[str, bytes]:
    folder = state.spool / CAMPAIGN
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def _num_events(log: Path, event: str, what: str | None = None) -> int:
    if not log.exists():
        return 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return sum(1 for each in events if each["event"] == event and each.get("what") == what)


def _cells_running(state: State) -> bool:
    """Whether any process of the measured layer still runs from this state folder's snapshots."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes()
        except OSError:  # ended meanwhile
            continue
        if f"PYTHONPATH={state.snapshots}".encode() in variables:
            return True
    return False


def _wait_for(condition: Callable[[], bool], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
