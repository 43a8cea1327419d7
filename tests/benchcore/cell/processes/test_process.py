"""A contender's process ends without waiting for what can't happen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.processes import process as process_module
from benchcore.cell.processes.process import ContenderProcess, start_contender

ROOT = Path(__file__).parents[4]


def _start(tmp_path: Path) -> ContenderProcess:
    return start_contender(sys.executable, {"PYTHONPATH": str(ROOT)}, tmp_path / "log", "probe")


def _exit_code(process: ContenderProcess) -> int:
    return process._process.returncode


def test_an_idle_process_ends_by_itself_once_its_pipe_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, killed = _start(tmp_path), list[int]()
    process.request({"do": "probe"}, wanted="probed", timeout_s=60.0)
    monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(number))
    process.close()
    assert _exit_code(process) == 0


def test_a_frozen_process_is_killed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, waited = _start(tmp_path), list[float | None]()
    process.request({"do": "probe"}, wanted="probed", timeout_s=60.0)
    process.freeze()
    real = subprocess.Popen.wait

    def wait(self: Any, timeout: float | None = None) -> int:
        waited.append(timeout)
        return real(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    process.close()
    assert (_exit_code(process), waited) == (-9, [None])


def test_a_process_that_is_continued_while_it_stops_is_stopped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Slurm's resume meets a freeze: each of the first three stops is undone at once."""
    process, real, sent = _start(tmp_path), os.killpg, list[int]()

    def undo(pid: int, number: int) -> None:
        real(pid, number)
        if number == signal.SIGSTOP and len(sent) < 3:
            sent.append(number)
            real(pid, signal.SIGCONT)

    monkeypatch.setattr(os, "killpg", undo)
    process.freeze()
    assert process.is_stopped
    assert len(sent) == 3
    process.thaw()
    assert process.request({"do": "probe"}, wanted="probed", timeout_s=60.0)
    assert not process.is_stopped
    process.close()


def test_a_process_that_does_not_stop_fails_instead_of_being_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, real = _start(tmp_path), os.killpg
    monkeypatch.setattr(process_module, "FREEZE_S", 0.2)
    monkeypatch.setattr(os, "killpg", lambda pid, n: n == signal.SIGSTOP or real(pid, n))
    with pytest.raises(ContenderFailedError, match="did not stop within") as failed:
        process.freeze()
    assert (failed.value.status, _exit_code(process)) == ("timeout", -signal.SIGKILL)
