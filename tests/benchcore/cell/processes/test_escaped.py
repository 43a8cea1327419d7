"""A process that leaves its contender's group is ended, and voids that side."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from duel_orders import add_workload, copy_inside_ring, make_contender, make_order, run_order

from benchcore.cell.processes.escaped import end_escaped, list_escaped
from benchcore.state import open_state

_SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def other_group() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(_SLEEP, start_new_session=True) as process:
        yield process
        process.kill()


def test_processes_of_other_groups_are_listed_wherever_they_stand(
    other_group: subprocess.Popen[bytes],
) -> None:
    pid = other_group.pid
    assert pid in [each.pid for each in list_escaped({os.getpgrp()})]
    assert pid not in [each.pid for each in list_escaped({os.getpgrp(), pid})]
    with subprocess.Popen(_SLEEP) as own:
        assert own.pid not in [each.pid for each in list_escaped({os.getpgrp()})]
        own.kill()
    other_group.kill()
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    assert pid not in [each.pid for each in list_escaped({os.getpgrp()})]


def test_nothing_is_ended_by_who_does_not_adopt(other_group: subprocess.Popen[bytes]) -> None:
    assert end_escaped(()) == []
    assert other_group.poll() is None


_SPEC = """
from dataclasses import dataclass
from benchcore.workloads.contract import make_idle_spec

@dataclass(frozen=True)
class Case:
    use_case: str = "infer"
    batch: int = 1
    precision: str = "fp32_ieee"

SPEC = make_idle_spec(cases={"bare": Case()}, settings={"stdlib": {"healthy": ("yes", "no")}})
"""
_SIDE = """
import os, subprocess, sys, time
from benchcore.program import Program

_SPIN = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"

def build(case, arrays, settings):
    def step(inputs):
        time.sleep(0.0002)

    if settings.get("healthy") == "no":
        with open(FILE, "a") as pids:
            subprocess.run(["setsid", "-f", sys.executable, "-c", _SPIN], env={}, stdout=pids)
            while not os.stat(FILE).st_size:
                time.sleep(0.01)
    return Program(step=step)
"""


def test_a_process_that_leaves_its_contender_is_ended_and_named(tmp_path: Path) -> None:
    """It lost its parent, and has a session and no variables of its own."""
    state, snapshot, pids = open_state(tmp_path / "state"), tmp_path / "snapshot", tmp_path / "pids"
    copy_inside_ring(snapshot)
    add_workload(snapshot, "leaving", _SPEC, _SIDE.replace("FILE", repr(str(pids))))
    fair, leaving = (
        make_contender(each, settings={"compile": "none", "healthy": each})
        for each in ("yes", "no")
    )
    order = make_order(fair, leaving, workload="leaving", starts=1, rounds=2, passes=False)
    document = run_order(order, state, snapshot)
    found = {each["name"]: each["effective"]["manifest"] for each in document["contenders"]}
    assert found["no"]["processes"].startswith("left its group: python")
    assert "processes" not in found["yes"]
    (pid,) = pids.read_text().split()
    assert not Path(f"/proc/{pid}").exists()
