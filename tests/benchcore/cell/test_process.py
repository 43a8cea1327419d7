"""A contender's process ends without waiting for what can't happen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchcore.cell.process import ContenderProcess, start_contender

ROOT = Path(__file__).parents[3]


def _start(tmp_path: Path) -> ContenderProcess:
    return start_contender(sys.executable, {"PYTHONPATH": str(ROOT)}, tmp_path / "log", "probe")


def _exit_code(process: ContenderProcess) -> int:
    return process._process.returncode


def test_an_idle_process_ends_by_itself_once_its_pipe_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, killed = _start(tmp_path), list[int]()
    process.ask({"do": "probe"}, wanted="probed", timeout_s=60.0)
    monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(number))
    process.close()
    assert _exit_code(process) == 0


def test_a_frozen_process_is_killed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, waited = _start(tmp_path), list[float | None]()
    process.ask({"do": "probe"}, wanted="probed", timeout_s=60.0)
    process.freeze()
    real = subprocess.Popen.wait

    def wait(self: Any, timeout: float | None = None) -> int:
        waited.append(timeout)
        return real(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    process.close()
    assert (_exit_code(process), waited) == (-9, [None])
