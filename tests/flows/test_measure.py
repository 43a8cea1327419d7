"""An ad-hoc duel from the command line; failures around it are distinguished from results."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from command_line import Ended, run_here
from prefect_server import Template

from benchcore.planning.snapshot import hash_inside, take_snapshot
from benchcore.state import open_state
from flows.server import services

DEADHEAT = str(Path(sys.executable).parent / "deadheat")
COMMAND = ["run", "noop", "--case", "bare", "--contender", "stdlib", "--starts", "1"]


def _run(state: Path, campaign: str) -> Ended:
    return run_here(*COMMAND, "--campaign", campaign, "--state", str(state), "--json")


def test_ctrl_c_stops_everything_and_prints_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect's temporary server, too."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    command = [*COMMAND[:-1], "50", "--campaign", "interrupted", "--state", str(tmp_path)]
    log = tmp_path / "campaigns" / "interrupted" / "progress.jsonl"
    process = subprocess.Popen(
        [DEADHEAT, *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background has them, and us, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _wait_until(lambda: log.exists() and '"round"' in log.read_text())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, printed = process.communicate(timeout=90)
    assert process.returncode == 130, printed
    assert "interrupted; rerun the same command to resume" in printed
    assert not list((tmp_path / "spool").rglob("*.json"))
    with sqlite3.connect(tmp_path / "prefect" / "prefect.db") as database:
        assert database.execute("SELECT state_type FROM flow_run").fetchall() == [("CRASHED",)]
    with pytest.raises(ProcessLookupError):  # nothing of the group is left
        os.killpg(process.pid, 0)


@pytest.mark.parametrize("when", ["its server starts", "it measures"])
def test_a_killed_command_ends_all_that_it_started(tmp_path: Path, when: str) -> None:
    """Its server, too, which nobody else on this machine may use."""
    command = [*COMMAND[:-1], "50", "--campaign", "killed", "--state", str(tmp_path)]
    log = tmp_path / "campaigns" / "killed" / "progress.jsonl"
    marked = services.Service(name="killed", folder=tmp_path)
    Template.copy(tmp_path / "prefect")  # the test above begins with nothing
    process = subprocess.Popen(
        [DEADHEAT, *command],
        env={**os.environ, "DEADHEAT_SERVICE": marked.mark},
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until(lambda: bool(_list_ports(marked)))
        if when == "it measures":
            _wait_until(lambda: log.exists() and '"round"' in log.read_text())
            (port,) = _list_ports(marked)
            assert _ask(f"http://127.0.0.1:{port}/api/admin/version") == 401
    finally:
        process.kill()
        process.wait()
    try:
        _wait_until(lambda: not services.find(marked), limit_s=30)
    finally:
        for pid in services.find(marked):
            os.kill(pid, signal.SIGKILL)


def _ask(url: str) -> int:
    """The status of the answer to a request without a password."""
    try:
        with urlopen(url, timeout=30) as answer:
            return answer.status
    except HTTPError as error:
        with error:
            return error.code


def _list_ports(marked: services.Service) -> list[str]:
    """The ports of the servers that run, without the watchdogs that start them."""
    found: list[str] = []
    for pid in services.find(marked):
        with contextlib.suppress(OSError):  # it has ended
            line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if line[1:3] == ["-m", "uvicorn"]:
                found.append(line[line.index("--port") + 1])
    return found


def _wait_until(condition: Callable[[], bool], limit_s: float = 120) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_failed_conductor_is_retried_reported_and_can_be_rerun(
    tmp_path: Path, prefect_api: None
) -> None:
    ring = tmp_path / hash_inside()  # not the snapshot, which is repaired before use
    shutil.copytree(take_snapshot(open_state(tmp_path).snapshots), ring)
    (ring / "benchcore" / "cell" / "conductor.py").unlink()
    with mock.patch("benchcore.running.duels.take_snapshot", return_value=ring):
        failed = _run(tmp_path, "broken")
    assert failed.returncode == 1, failed.stderr
    assert "no duel left a result" in failed.stderr
    assert "No module named 'benchcore.cell.conductor'" in failed.stderr
    log = (tmp_path / "campaigns" / "broken" / "progress.jsonl").read_text()
    begun = [line for line in log.splitlines() if '"begun"' in line and '"duel"' in line]
    assert len(begun) == 2  # tried once more
    repaired = _run(tmp_path, "broken")
    assert repaired.returncode == 0, repaired.stderr
    assert json.loads(repaired.stdout)["failures"] == []
