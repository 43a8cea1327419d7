"""What builds an environment ends with the process that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchcore.environments.child_lifetime import tie_to_thread

_STARTER = """
import subprocess, sys
from benchcore.environments.child_lifetime import tie_to_thread
subprocess.run(tie_to_thread([sys.executable, "-c", sys.argv[1], sys.argv[2]]))
"""
_WORK = """
import os, sys, time
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_command_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    starter = subprocess.Popen([sys.executable, "-c", _STARTER, _WORK, str(started)])
    until = time.monotonic() + 30
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process = Path("/proc") / started.read_text()
    assert process.exists()
    starter.kill()
    starter.wait()
    until = time.monotonic() + 5
    while _runs(process) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(process)


def _runs(process: Path) -> bool:
    try:
        return ") Z " not in (process / "stat").read_text()
    except FileNotFoundError:
        return False


def test_a_tied_command_ends_as_it_would_alone() -> None:
    code = "import sys; print(sys.argv[1:]); sys.exit(3)"
    done = subprocess.run(
        tie_to_thread([sys.executable, "-c", code, "a b"]), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (3, "['a b']\n")
