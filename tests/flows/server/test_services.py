"""Processes of `deadheat up`: restarted when they end, found without a pid file, ended whole."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchcore.errors import UserError
from flows.server import services
from flows.server.services import Service
from flows.server.supervisor import rotate

# It starts a child of a clean environment that ignores SIGTERM, and reports when.
PARENT = """
import pathlib, subprocess, sys, time
deaf = "import pathlib, signal, time; signal.signal(15, signal.SIG_IGN);"
deaf += "pathlib.Path('child').touch(); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", deaf], env={})
time.sleep(600)
"""


@pytest.fixture
def start() -> Iterator[Callable[[Service], int]]:
    """Starts services, and stops them after the test."""
    started: list[Service] = []

    def run(service: Service) -> int:
        started.append(service)
        return services.start(service)

    yield run
    for each in started:
        services.stop(each)


def _python(folder: Path, program: str) -> Service:
    command = [sys.executable, "-c", program]
    return Service(name="worker", folder=folder, command=command, first_pause_s=0.1)


def _wait(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not happen within 60 s"
        time.sleep(0.05)


def test_all_children_end_with_the_supervisor_even_if_frozen_or_ignoring_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = _python(tmp_path, PARENT)
    monkeypatch.setattr(services, "_GRACE_S", 0.5)
    assert not services.stop(service)
    first = services.start(service)
    services.wait_until(service, (service.folder / "child").exists, 60)
    found = services.find(service)
    assert found[0] == first and len(found) == 3
    assert not services.find(Service(name="worker", folder=service.folder / "other"))
    assert not services.find(Service(name="work", folder=service.folder))
    os.kill(found[2], signal.SIGSTOP)

    assert services.stop(service)

    assert not services.find(service)
    _wait(lambda: not any(map(_runs, found)))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_service_restarts_with_a_line_in_the_log(
    tmp_path: Path, start: Callable[[Service], int]
) -> None:
    service = _python(tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    supervised = start(service)
    _wait(lambda: service.log.read_text() == "up\n")
    (_, killed) = services.find(service)
    os.kill(killed, signal.SIGKILL)
    _wait(lambda: service.log.read_text().count("up\n") == 2)  # of the second one, too
    (first, second) = services.find(service)
    assert first == supervised and second != killed
    line = service.log.read_text().splitlines()[1]
    assert "worker ended with exit code -9 after 0 s; it starts again in 0.1 s" in line
    os.kill(supervised, signal.SIGTERM)
    _wait(lambda: not services.find(service))


def test_a_service_that_ends_at_once_is_retried_with_growing_pauses(
    tmp_path: Path, start: Callable[[Service], int]
) -> None:
    service = _python(tmp_path, "raise SystemExit(3)")
    start(service)
    _wait(lambda: service.log.read_text().count("ended with exit code 3") >= 4)
    pauses = re.findall(r"starts again in ([\d.]+) s", service.log.read_text())
    assert pauses[:4] == ["0.1", "0.2", "0.4", "0.8"]
    assert services.stop(service) and not services.find(service)


def test_a_service_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    service = _python(tmp_path, "raise SystemExit('no such database')")
    services.start(service)
    with pytest.raises(UserError, match=r"it has ended; see '.*worker.log'.*no such database"):
        services.wait_until(service, lambda: False, 60)
    assert not services.find(service)


def test_logs_rotate_under_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("ab", buffering=0) as log:
        for text in (b"one", b"two", b"three", b"four", b"five"):
            rotate(path, min_bytes=3)
            log.write(text)
    rotate(path, min_bytes=5)
    kept = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert kept == {
        "worker.log": "five",
        "worker.log.1": "four",
        "worker.log.2": "three",
        "worker.log.3": "two",
    }


def test_a_taken_port_is_reported_with_the_option_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .*in use.* another port with --port"):
            services.check_port(port, "--port")
    services.check_port(port, "--port")
