"""The conductor's processes: a contender that waits is frozen, and none outlives its conductor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from duel_orders import make_faulty_order

from benchcore.protocol import DuelOrder, encode, write_json
from benchcore.state import State


@pytest.mark.parametrize("freeze", [True, False])
def test_a_contender_that_waits_is_frozen(state: State, snapshot: Path, freeze: bool) -> None:
    """Two are never awake at once, from the second one's launch on; with freeze=False always."""
    order = make_faulty_order(
        "raise_in_build", "healthy", "healthy", starts=1, rounds=20, block_ms=20.0, freeze=freeze
    )
    process = _start_conductor(order, state, snapshot)
    both_awake = []
    try:
        while process.poll() is None:
            pids = _children(process.pid)
            if len(pids) == 2:
                one, other, again = (_is_awake(pid) for pid in (*pids, pids[0]))
                both_awake.append(one and other and again)
            time.sleep(0.005)
    finally:
        process.wait(timeout=60)
    assert len(both_awake) > 20
    share = sum(both_awake) / len(both_awake)
    assert share < 0.3 if freeze else share > 0.7


def _is_awake(pid: int) -> bool:
    """Neither stopped nor gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "TZX"


def test_no_contender_outlives_a_killed_conductor(state: State, snapshot: Path) -> None:
    process = _start_conductor(
        make_faulty_order("segfault", "healthy", "healthy", rounds=2000), state, snapshot
    )
    _wait_for(lambda: len(_children(process.pid)) == 2)
    children = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def _start_conductor(order: DuelOrder, state: State, snapshot: Path) -> subprocess.Popen[bytes]:
    scratch = state.campaigns / "test"
    scratch.mkdir(exist_ok=True)
    write_json(scratch / "order.json", encode(order))
    command = [sys.executable, "-P", "-s", "-m", "benchcore.cell", "conductor"]
    arguments = [scratch / "order.json", scratch / "result.json", scratch / "scratch"]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(snapshot)},
    )


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it has ended
        return []
    return [int(child) for child in text.split()]


def _wait_for(condition: Any, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.01)
