"""One duel in an allocation: ended in time, with nobody left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from duel_orders import copy_inside_ring, make_contender, make_order
from result_documents import SLURM

from benchcore.planning.snapshot import hash_inside, take_snapshot
from benchcore.protocol import SlurmJob
from benchcore.running import heartbeat
from benchcore.running.device_lock import hold_device
from benchcore.running.duel_process import (
    ConductorFailedError,
    DeviceBusyError,
    OutOfTimeError,
    result_path,
    run_duel,
)
from benchcore.state import State
from benchcore.store.incoming.documents import read_document


def test_a_duel_that_would_outlive_its_allocation_is_stopped(state: State) -> None:
    hangs = make_order(make_contender("a"), workload="faulty", case="hang_in_step")
    before = time.time()
    with pytest.raises(OutOfTimeError, match="would not have ended before its allocation"):
        run_duel(
            hangs, state, take_snapshot(state.snapshots), lambda event: None, ends_at=before + 3
        )
    assert 3 <= time.time() - before < 60
    assert not result_path(state, hangs.campaign, hangs.duel_run).exists()
    deadline = time.monotonic() + 30
    while _cells_running(state):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_result_records_its_job_and_one_in_time_is_stored(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", SLURM["job_id"])
    order = make_order(
        make_contender("a"), slurm=SlurmJob(**{**SLURM, "gpus": tuple(SLURM["gpus"])})
    )
    snapshot = take_snapshot(state.snapshots)
    path = run_duel(order, state, snapshot, lambda event: None, ends_at=time.time() + 300)
    allocation = read_document(path)["allocation"]
    assert allocation["slurm"] == SLURM
    assert (allocation["slurm_job_id"], allocation["id"]) == (SLURM["job_id"], SLURM["job_id"])
    # One that is there is not measured again, however late it is.
    assert run_duel(order, state, snapshot, lambda event: None, ends_at=0.0) == path


def test_a_duel_with_a_contender_killed_from_outside_is_measured_again(state: State) -> None:
    events: list[dict[str, Any]] = []

    def kill_once(event: dict[str, Any]) -> None:
        if event["event"] == "round" and not any(each["event"] == "round" for each in events):
            os.kill(_find_contender(), signal.SIGKILL)
        events.append(event)

    order = make_order(make_contender("a"), rounds=40, block_ms=20.0, starts=1, passes=False)
    path = run_duel(order, state, take_snapshot(state.snapshots), kill_once)
    again = [each for each in events if each["event"] == "again"]
    assert again == [{"event": "again", "contenders": ["a"]}]
    (contender,) = read_document(path)["contenders"]
    assert (contender["status"], contender["failure"]) == ("ok", None)
    assert len(contender["starts"][0]["blocks"]) == 40


def _find_contender() -> int:
    """The process id of the only contender of the only conductor that we run."""
    conductors = [each for each in _list_children(os.getpid()) if _is_conductor(each)]
    (contender,) = [each for conductor in conductors for each in _list_children(conductor)]
    return contender


def _find_conductor() -> int:
    (conductor,) = [each for each in _list_children(os.getpid()) if _is_conductor(each)]
    return conductor


def _is_conductor(pid: int) -> bool:
    """Other tests of this process may have left helpers behind, such as a resource tracker."""
    return b"conductor" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def _list_children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


@pytest.mark.parametrize(
    "failure", ["the lock did not resolve", None], ids=["never had", "not here"]
)
def test_a_duel_without_environments_reports_each_missing_one(
    state: State, failure: str | None
) -> None:
    gone = {"python": "/nonexistent/python", "environment_failure": failure}
    order = make_order(make_contender("a", **gone), make_contender("b", **gone))
    path = run_duel(order, state, take_snapshot(state.snapshots), lambda event: None)
    assert [each["status"] for each in read_document(path)["contenders"]] == ["environment"] * 2


def test_the_first_document_of_two_parallel_attempts_stays(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm lost a node, and its job lives on beside the one that was sent again."""
    order = make_order(make_contender("a"))
    snapshot = take_snapshot(state.snapshots)
    first: list[bytes] = []

    def overtake(event: dict[str, object]) -> None:
        if not first:
            monkeypatch.setenv("DEADHEAT_LOCKS", str(tmp_path / "of another node"))
            first.append(run_duel(order, state, snapshot, lambda event: None).read_bytes())

    path = run_duel(order, state, snapshot, overtake)
    assert [path.read_bytes()] == first
    duels = state.campaigns / order.campaign / "duels"
    kept, refused = sorted(duels.iterdir(), key=lambda folder: len(folder.name))
    assert (kept.name, (kept / "conductor.log").exists()) == (order.duel_run, True)
    late = json.loads((refused / "result.json").read_text())["allocation"]
    assert late["id"] != read_document(path)["allocation"]["id"]


def _cells_running(state: State) -> bool:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PYTHONPATH={state.snapshots}".encode() in environ.read_bytes():
                return True
        except OSError:  # ended meanwhile
            continue
    return False


@pytest.mark.parametrize(("times", "status"), [(1, "ok"), (2, "timeout")])
def test_a_stopped_conductor_is_ended_and_its_duel_measured_again_or_stored_with_a_status(
    state: State, monkeypatch: pytest.MonkeyPatch, times: int, status: str
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_LIMIT_S", 5.0)
    order = make_order(make_contender("a"), make_contender("b"), starts=1, passes=False)
    stopped, again = set[int](), list[list[str]]()

    def stop_it(event: dict[str, Any]) -> None:
        if event["event"] == "stage" and len(stopped | {_find_conductor()}) <= times:
            stopped.add(_find_conductor())
            os.kill(_find_conductor(), signal.SIGSTOP)
        again.extend([event["contenders"]] if event["event"] == "again" else [])

    path = run_duel(order, state, take_snapshot(state.snapshots), stop_it)
    contenders = read_document(path)["contenders"]
    assert [each["status"] for each in contenders] == [status] * 2
    assert again == [["a", "b"]]
    if status == "timeout":
        (failure,) = {json.dumps(each["failure"], sort_keys=True) for each in contenders}
        assert "the conductor was ended: it sent no heartbeat for 5 s" in failure
    deadline = time.monotonic() + 30
    while _cells_running(state):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_conductor_that_never_answers_leaves_no_document(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a device whose driver hangs: not even its description comes back."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_LIMIT_S", 1.0)
    monkeypatch.setattr("benchcore.running.duel_process._conductor_python", _write_sleeper(state))
    order = make_order(make_contender("a"))
    with pytest.raises(ConductorFailedError, match="was ended: it sent no heartbeat for 1 s"):
        run_duel(order, state, take_snapshot(state.snapshots), lambda event: None)
    assert not result_path(state, order.campaign, order.duel_run).exists()


def _write_sleeper(state: State) -> Callable[[object], str]:
    program = state.root / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    return lambda order: str(program)


def test_measuring_processes_see_no_secret(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "deadheat:secret-of-the-server")

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            for pid in (_find_conductor(), _find_contender()):
                seen.append(Path(f"/proc/{pid}/environ").read_bytes())

    run_duel(make_order(make_contender("a")), state, take_snapshot(state.snapshots), look)
    assert seen and not any(b"secret-of-the-server" in each for each in seen)


def test_duels_on_one_device_wait_for_each_other(state: State) -> None:
    events: list[str] = []
    order, snapshot = make_order(make_contender("a")), take_snapshot(state.snapshots)

    def measure() -> Path:
        return run_duel(order, state, snapshot, lambda event: events.append(event["event"]))

    with ThreadPoolExecutor(1) as pool:
        with hold_device("cpu", lambda: None) as held:
            assert held
            done = pool.submit(measure)
            while not events:
                time.sleep(0.05)
            with pytest.raises(DeviceBusyError, match="another process used"):
                run_duel(order, state, snapshot, lambda event: None, ends_at=time.time())
            assert events == ["waiting"]
        assert done.result().exists()


_HELPER = """
import subprocess
import sys

from benchcore.program import Program


def build(case, arrays, settings):
    code = "import time; time.sleep(3600)  # a helper of a compiler"
    subprocess.Popen([sys.executable, "-c", code])
    return Program(step=lambda inputs: None)
"""


def test_no_frozen_helper_of_a_contender_outlives_a_killed_conductor(
    state: State, tmp_path: Path
) -> None:
    """Linux ends only the children of a process with it."""
    ring, killed = tmp_path / hash_inside(), list[int]()
    copy_inside_ring(ring)
    (ring / "benchcore/workloads/noop/in_stdlib.py").write_text(_HELPER)

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round" and not killed:
            killed.append(_find_conductor())
            assert len(_list_helpers()) == 2
            os.kill(killed[0], signal.SIGKILL)

    order = make_order(make_contender("a"), make_contender("b"), rounds=2000, passes=False)
    with pytest.raises(ConductorFailedError):
        run_duel(order, state, ring, kill)
    deadline = time.monotonic() + 10
    while _list_helpers():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _list_helpers() -> list[Path]:
    found = list[Path]()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"a helper of a compiler" in each.read_bytes():
                found.append(each)
    return found
