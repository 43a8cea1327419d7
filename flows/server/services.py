"""Processes that outlive the command that starts them: started, found again, and ended.

A service is known by a mark in its environment, which whatever it starts inherits, so there is no
pid file that could lie, and nothing of it is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchcore.errors import UserError

_MARK = "DEADHEAT_SERVICE"
_GRACE_S = 15.0
_MOST_WORDS = 600
_started: list[subprocess.Popen[bytes]] = []
"""They outlive this process, and Python warns of those that it forgets."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A process that is to run as long as the machine does. Its log is `NAME.log` of the folder."""

    name: str
    folder: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """What it and its children say."""
        return self.folder / f"{self.name}.log"

    @property
    def mark(self) -> str:
        """What tells its processes from those of any other folder's."""
        return f"{self.folder}:{self.name}"


def start(service: Service) -> int:
    """Start it, out of reach of this terminal's Ctrl-C; its process id."""
    service.folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **service.environment, _MARK: service.mark}
    with service.log.open("ab") as log:
        process = subprocess.Popen(
            service.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=service.folder,
            start_new_session=True,
        )
    _started.append(process)
    return process.pid


def find(service: Service) -> list[int]:
    """Its processes, and whatever they started, the first first."""
    return sorted(pid for pid, _ in _find(service))


def _find(service: Service) -> set[tuple[int, str]]:
    """Process ids, each with when it began: an id may be given to another one day."""
    mark = f"{_MARK}={service.mark}".encode()
    listed = list(_list_processes())
    found = {each.pid for each in listed if mark in each.environment}
    while more := {each.pid for each in listed if each.parent in found} - found:
        found |= more
    return {(each.pid, each.began) for each in listed if each.pid in found - {os.getpid()}}


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    began: str
    environment: list[bytes]


def _list_processes() -> Iterator[_Process]:
    """Zombies are over, and left out."""
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at, or be another user's.
        with contextlib.suppress(OSError):
            told = (entry / "stat").read_text().rpartition(")")[2].split()
            if told[0] != "Z":
                environment = (entry / "environ").read_bytes().split(b"\0")
                yield _Process(int(entry.name), int(told[1]), told[19], environment)


def stop(service: Service) -> bool:
    """End it and all that it started: asked first, killed when they don't listen. Whether there
    was anything to end."""
    found = _find(service)
    if not found:
        return False
    _signal([min(pid for pid, _ in found)], signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    while left := _still(service, found):
        if time.monotonic() >= until:  # what is frozen does not listen, either
            _signal(left, signal.SIGKILL)
        time.sleep(0.1)
    return True


def _still(service: Service, known: set[tuple[int, str]]) -> list[int]:
    """What is left of them, of those too whose parent is gone and who lost the mark."""
    alive = {(each.pid, each.began) for each in _list_processes()}
    return [pid for pid, _ in (known & alive) | _find(service)]


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until(service: Service, ready: Callable[[], bool], timeout_s: float) -> None:
    """Until it is ready. Raises UserError with the end of its log if it ends, or takes too long."""
    until = time.monotonic() + timeout_s
    while not ready():
        alive = bool(find(service))
        if not alive or time.monotonic() >= until:
            what = f"is not ready after {timeout_s:.0f} s" if alive else "has ended"
            raise UserError(
                f"wanted {service.name} to run, but it {what}; see {str(service.log)!r}, which "
                f"ends with: {_read_end(service.log)}"
            )
        time.sleep(0.2)


def _read_end(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return " ".join(text.split())[-_MOST_WORDS:] or "nothing"


def check_port(port: int, option: str) -> None:
    """Raises UserError if nobody can listen there, on loopback."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise UserError(
            f"wanted to listen on port {port} of 127.0.0.1, but {error}; end the program that "
            f"does, or name another port with {option}"
        ) from error
