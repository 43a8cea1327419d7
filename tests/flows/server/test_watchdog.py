"""The watchdog's server never outlives its starter, and is started again when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.server import watchdog

_SERVER = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


@pytest.fixture
def watching(pids: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", watchdog.__file__, sys.executable, "-c", _SERVER]
    process = subprocess.Popen([*command, str(pids)], stdin=subprocess.PIPE)
    _until(lambda: len(_list_pids(pids)) == 1)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()


def _list_pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("how", ["pipe", "SIGTERM", "SIGKILL"])
def test_its_server_ends_with_it(watching: subprocess.Popen[bytes], pids: Path, how: str) -> None:
    (server,) = _list_pids(pids)
    if how == "pipe":
        assert watching.stdin is not None
        watching.stdin.close()
    else:
        watching.send_signal(getattr(signal, how))
    watching.wait(30)
    _until(lambda: not _runs(server))


def test_a_server_that_dies_is_started_again(watching: subprocess.Popen[bytes], pids: Path) -> None:
    os.kill(_list_pids(pids)[0], signal.SIGKILL)
    _until(lambda: len(_list_pids(pids)) == 2)
    assert _runs(_list_pids(pids)[1]) and watching.poll() is None
