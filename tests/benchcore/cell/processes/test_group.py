"""A contender that is a group of processes ends, freezes and fails as a whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from duel_orders import add_workload, copy_inside_ring, make_contender, make_order, run_order

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.processes import process as process_module
from benchcore.cell.processes.group import _reserve_port
from benchcore.cell.processes.process import _is_stopped, start_contender
from benchcore.cell.runtimes.jax_group import join_group
from benchcore.cell.runtimes.jax_runtime import JaxRuntime
from benchcore.cell.runtimes.runtime import ALONE, Place
from benchcore.cell.runtimes.torch_runtime import TorchRuntime
from benchcore.program import UnsupportedError
from benchcore.state import open_state

ROOT = Path(__file__).parents[4]
SPEC = """
from dataclasses import dataclass

from benchcore.workloads.contract import make_idle_spec


@dataclass(frozen=True, kw_only=True)
class Case:
    fault: str
    use_case: str = "op"
    batch: int = 1
    precision: str = "fp32_ieee"
    devices: int = 3


SPEC = make_idle_spec(cases={each: Case(fault=each) for each in ("none", "dies", "hangs")})
"""
STDLIB = """
import os
import sys
import time
from pathlib import Path

from benchcore.program import Program


def build(case, arrays, settings):
    member = sys.argv[1] == "member"
    seen = Path({folder!r}) / str(os.getpid())
    steps = 0

    def step(inputs):
        nonlocal steps
        steps += 1
        if member and not seen.exists():  # it may be killed while it writes
            seen.write_text(f"{{os.getpgrp()}} {{steps}}")
        while not member and case.devices > 1 + len(os.listdir(seen.parent)):
            time.sleep(0.01)  # one that starts late would be ended before its first step
        if member and case.fault == "dies" and steps > 3:
            os._exit(3)
        if not member and case.fault == "hangs" and steps > 3:
            time.sleep(3600)  # as in a collective that another process never enters
        time.sleep(0.0002)

    return Program(step=step, read=lambda outputs: {{}})
"""


def _run(tmp_path: Path, case: str, *, grouped: bool = True) -> tuple[dict[str, Any], list[int]]:
    """The contender of a duel, and the processes that followed it."""
    snapshot, seen = tmp_path / "snapshot", tmp_path / "seen"
    seen.mkdir()
    copy_inside_ring(snapshot)
    add_workload(snapshot, "grouped", SPEC, STDLIB.format(folder=str(seen)))
    if grouped:
        runtime = snapshot / "benchcore/cell/runtimes/stdlib_runtime.py"
        text = runtime.read_text()
        assert text.count("return 1\n") == 1
        runtime.write_text(text.replace("return 1\n", "return devices\n"))
    order = make_order(
        make_contender("a"),
        workload="grouped",
        case=case,
        starts=1,
        passes=False,
        prepare_timeout_s=8.0,
        block_timeout_s=8.0,
    )
    state = open_state(tmp_path / "state")
    document = run_order(order, state, snapshot)
    groups = {path.read_text().split()[0] for path in seen.iterdir()}
    assert len(groups) <= 1, "members of one start are in the process group of its leader"
    members = [int(path.name) for path in seen.iterdir()]
    assert not {int(group) for group in groups} & set(members)
    return document["contenders"][0], members


def test_all_processes_of_a_group_run_the_steps_and_end_with_it(tmp_path: Path) -> None:
    contender, members = _run(tmp_path, "none")
    assert (contender["status"], contender["failure"]) == ("ok", None)
    assert len(members) == 2
    assert all(map(_is_stopped, members))


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [("dies", "crash", "of the group of 3 ended"), ("hangs", "timeout", "no message for 8 s")],
)
def test_a_process_of_a_group_that_fails_is_the_status_of_the_contender(
    tmp_path: Path, case: str, status: str, words: str
) -> None:
    contender, members = _run(tmp_path, case)
    assert contender["status"] == status
    assert words in contender["failure"]["reason"]
    assert members
    assert all(map(_is_stopped, members))


def test_several_devices_of_a_framework_that_has_one_are_unsupported(tmp_path: Path) -> None:
    contender, members = _run(tmp_path, "none", grouped=False)
    assert contender["status"] == "unsupported"
    assert "wanted 3 devices, but stdlib has one" in contender["failure"]["reason"]
    assert members == []


def test_a_machine_with_too_few_gpus_is_unsupported() -> None:
    torch = TorchRuntime()
    torch._torch = SimpleNamespace(__version__="2", cuda=SimpleNamespace(device_count=lambda: 1))
    with pytest.raises(UnsupportedError, match=r"wanted 2 devices from .*finds 1 GPUs; choose"):
        torch.initialise(
            device="cuda", precision="fp32_ieee", threads=1, settings={}, place=Place(size=2)
        )
    jax = JaxRuntime()
    jax._jax = SimpleNamespace(__version__="0.12", devices=lambda kind: ["gpu 0"])
    jax._place = ALONE
    with pytest.raises(UnsupportedError, match=r"wanted 2 devices from .*finds 1 GPUs; choose"):
        jax._find_device("cuda", 2)


def test_freezing_waits_for_every_process_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "FREEZE_S", 0.2)
    environment = {"PYTHONPATH": str(ROOT)}
    leader = start_contender(sys.executable, environment, tmp_path / "log", "probe")
    member = subprocess.Popen(["sleep", "60"], start_new_session=True)
    leader._members = [member.pid]
    try:
        os.kill(member.pid, signal.SIGSTOP)
        leader.freeze()
        leader.thaw()
        os.kill(member.pid, signal.SIGCONT)
        with pytest.raises(ContenderFailedError, match="did not stop within"):
            leader.freeze()
    finally:
        member.kill()
        member.wait()
        leader.close()


def test_the_port_where_a_group_meets_goes_to_no_other_program() -> None:
    reserved = _reserve_port()
    try:
        host, port = reserved.getsockname()
        assert host == "127.0.0.1"
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, port))
        with socket.socket() as coordinator:
            coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            coordinator.bind((host, port))
            coordinator.listen()
            with socket.create_connection((host, port), timeout=5):
                pass
    finally:
        reserved.close()


def test_a_jax_that_would_end_frozen_processes_is_unsupported() -> None:
    older = SimpleNamespace(
        __version__="0.5", distributed=SimpleNamespace(initialize=lambda address, size: None)
    )
    with pytest.raises(UnsupportedError, match=r"heartbeat_timeout_seconds .*JAX 0\.5 lacks"):
        join_group(older, Place(size=2, address="127.0.0.1:1"), "cpu", 2)


def test_as_many_processes_as_the_setting_and_the_devices_say() -> None:
    """A sweep over devices has the same settings on one device."""
    jax, torch = JaxRuntime(), TorchRuntime()
    several = {"compile": "jit", "processes": "per-device"}
    assert [jax.count_processes(devices, several) for devices in (1, 2, 4)] == [1, 2, 4]
    assert [jax.count_processes(devices, {"compile": "jit"}) for devices in (1, 4)] == [1, 1]
    assert [torch.count_processes(devices, {}) for devices in (1, 4)] == [1, 4]


@pytest.mark.parametrize(
    ("size", "own", "cpus", "threads"),
    [(1, 2, 2, 2), (1, 1, 2, 1), (2, 1, 2, 2), (2, 8, 16, 16), (4, 1, 2, 2), (2, 2, 2, 4)],
    ids=lambda number: str(number),
)
def test_members_beyond_the_cpus_run_in_turns(size: int, own: int, cpus: int, threads: int) -> None:
    assert Place(size=size).count_threads(own, cpus) == threads
