"""Work that goes on between steps: of this process's threads, or of its group's processes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchcore.cell.proof.watching import switches
from benchcore.cell.proof.watching.switches import works_meanwhile


class _Ended:
    """The folder of a process that has ended. Python 3.11's `glob` raises an error for it."""

    def glob(self, pattern: str) -> list[Path]:
        raise FileNotFoundError(pattern)

    def __truediv__(self, name: str) -> _Ended:
        return self


def test_a_process_that_ends_while_it_is_watched_uses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switches, "_list_started", lambda: [_Ended()])
    assert not works_meanwhile()


def test_work_between_steps_is_found_whatever_code_runs() -> None:
    assert not works_meanwhile()
    busy = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 10**6))
    busy.start()
    found, running = works_meanwhile(), busy.is_alive()
    busy.join()
    assert found
    assert running
    assert not works_meanwhile()


_STARVED = """
import hashlib
import os
import threading
from benchcore.cell.proof.watching.switches import works_meanwhile


def hash_long():
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)


os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
parent = os.getpid()
for _ in range(20):
    if os.fork() == 0:
        while os.getppid() == parent:
            pass
        os._exit(0)
threading.Thread(target=hash_long, daemon=True).start()
print(all(works_meanwhile() for _ in range(20)))
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists the states of threads")
def test_work_between_steps_is_found_where_it_gets_no_cpu() -> None:
    """Twenty others use the CPU. Each has 68 times its share."""
    done = subprocess.run([sys.executable, "-c", _STARVED], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"True"]


_STARTING = """
import subprocess
from benchcore.cell.proof.watching.switches import works_meanwhile

print(works_meanwhile())
started = subprocess.Popen(["sh", "-c", "while kill -0 $PPID; do :; done"])
print(any(works_meanwhile() for _ in range(100)))  # it may start late on a busy machine
started.kill()
started.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists the processes of a group")
def test_a_process_that_works_beside_a_contender_is_found() -> None:
    """A contender leads a group of its own: what it starts freezes with it."""
    assert _run_in_group(_STARTING) == [b"False", b"True"]


def _run_in_group(script: str) -> list[bytes]:
    """What a script prints that leads a group of its own."""
    order = [sys.executable, "-c", script]
    done = subprocess.run(order, stdout=subprocess.PIPE, check=True, start_new_session=True)
    return done.stdout.split()


_BESIDE = """
import subprocess
import sys
from benchcore.cell.proof.watching.switches import works_meanwhile

started = subprocess.Popen([sys.executable, "-c", {code!r}], stdout=subprocess.PIPE)
started.stdout.readline()
print(works_meanwhile())
started.kill()
started.wait()
"""
_LAGGING = """
import time
begun = time.monotonic()
print(flush=True)
while time.monotonic() < begun + 0.3:
    pass
print(flush=True)
time.sleep(60)
"""
_MANY_THREADS = """
import threading, time
for _ in range(1000):
    threading.Thread(target=time.sleep, args=[60], daemon=True).start()
print(flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists the processes of a group")
def test_processes_of_a_group_may_end_their_step_later() -> None:
    """On a busy machine the others of four are late."""
    assert _run_in_group(_BESIDE.format(code=_LAGGING)) == [b"False"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists the processes of a group")
def test_reading_the_times_of_a_group_is_no_work_of_the_contender() -> None:
    """It takes some 10 µs per thread, and torch's groups have hundreds of them."""
    assert _run_in_group(_BESIDE.format(code=_MANY_THREADS)) == [b"False"]
