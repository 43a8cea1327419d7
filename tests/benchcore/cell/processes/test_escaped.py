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

from benchcore.cell.processes.escaped import OwnSettings, end_escaped, list_escaped
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

SETTINGS = {"stdlib": {"healthy": ("yes", "no", "other")}}
SPEC = make_idle_spec(cases={"bare": Case()}, settings=SETTINGS)
"""
_SIDE = """
import os, resource, subprocess, sys, time
from benchcore.program import Program

_SPIN = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"

def build(case, arrays, settings):
    def step(inputs):
        time.sleep(0.0002)

    if settings.get("healthy") == "other":
        os.setpriority(os.PRIO_PROCESS, os.getppid(), os.getpriority(os.PRIO_PROCESS, 0) + 1)
        soft, hard = resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (soft - 1, hard))
    if settings.get("healthy") == "no":
        with open(PIDS, "a") as pids:
            subprocess.run(["setsid", "-f", sys.executable, "-c", _SPIN], env={}, stdout=pids)
            while not os.stat(PIDS).st_size:
                time.sleep(0.01)
    return Program(step=step)
"""


def test_a_process_that_leaves_its_contender_is_ended_and_named(tmp_path: Path) -> None:
    """It lost its parent, and has a session and no variables of its own."""
    state, snapshot, pids = open_state(tmp_path / "state"), tmp_path / "snapshot", tmp_path / "pids"
    copy_inside_ring(snapshot)
    add_workload(snapshot, "leaving", _SPEC, _SIDE.replace("PIDS", repr(str(pids))))
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


def test_settings_of_the_conductor_that_a_contender_changes_are_put_back(tmp_path: Path) -> None:
    """Contenders that start later would inherit them."""
    state, snapshot = open_state(tmp_path / "state"), tmp_path / "snapshot"
    copy_inside_ring(snapshot)
    add_workload(snapshot, "leaving", _SPEC, _SIDE.replace("PIDS", repr("")))
    sides = [
        make_contender(each, settings={"compile": "none", "healthy": each})
        for each in ("other", "yes")
    ]
    order = make_order(*sides, workload="leaving", starts=2, rounds=2, passes=False)
    document = run_order(order, state, snapshot)
    found = {each["name"]: each["effective"]["manifest"] for each in document["contenders"]}
    changed = found["other"]["processes"]
    assert changed == "changed the conductor's limits; changed the conductor's priority"
    assert "processes" not in found["yes"]


@pytest.mark.skipif(os.cpu_count() == 1, reason="no CPU can be left out")
def test_what_a_process_lets_others_inherit_is_restored() -> None:
    command = [sys.executable, "-c", _RESTORING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    changed = [f"changed the conductor's {each}" for each in ("CPUs", "limits", "priority")]
    assert done.stdout == f"[]\n{changed}\n[]\n"


_RESTORING = """
import os, resource
from benchcore.cell.processes.escaped import OwnSettings

own = OwnSettings()
print(own.restore())
os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
print(own.restore())
print(own.restore())
"""


def test_cpus_that_the_machine_takes_away_are_no_change_of_a_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpus = {0, 1, 2}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: None)  # they stay away
    own = OwnSettings()
    cpus.discard(2)
    assert own.restore() == []
    cpus.add(3)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: cpus.discard(3))
    assert own.restore() == []  # more of them are no harm
    assert cpus == {0, 1}
    cpus.discard(1)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, wanted: cpus.add(1))
    assert own.restore() == ["changed the conductor's CPUs"]
