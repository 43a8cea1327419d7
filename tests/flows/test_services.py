"""Processes of `deadheat up`: found without a pid file, and none is left."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from benchcore.errors import UserError
from flows.server import services
from flows.server.services import Service

# It starts a child of a clean environment that is deaf to SIGTERM, and says when.
PARENT = """
import pathlib, subprocess, sys, time
deaf = "import pathlib, signal, time; signal.signal(15, signal.SIG_IGN);"
deaf += "pathlib.Path('child').touch(); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", deaf], env={})
time.sleep(600)
"""


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(name="worker", folder=tmp_path, command=[sys.executable, "-c", PARENT])


def test_whatever_it_started_ends_with_it_frozen_and_deaf_ones_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_GRACE_S", 0.5)
    assert not services.stop(service)
    first = services.start(service)
    services.wait_until(service, (service.folder / "child").exists, 60)
    found = services.find(service)
    assert found[0] == first and len(found) == 2
    assert not services.find(Service(name="worker", folder=service.folder / "other"))
    assert not services.find(Service(name="work", folder=service.folder))
    os.kill(found[1], signal.SIGSTOP)

    assert services.stop(service)

    assert not services.find(service)
    until = time.monotonic() + 10
    while any(_runs(pid) for pid in found):
        assert time.monotonic() < until


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such database')"]
    service = Service(name="server", folder=tmp_path, command=command)
    services.start(service)
    with pytest.raises(UserError, match=r"it has ended; see '.*server.log'.*no such database"):
        services.wait_until(service, lambda: False, 60)


def test_a_port_that_is_taken_is_told_with_the_option_that_names_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .*in use.* another port with --port"):
            services.check_port(port, "--port")
    services.check_port(port, "--port")
