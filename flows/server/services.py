"""Processes that outlive the command that starts them, each under a supervisor of its own.

A service is found by a mark in its environment, which everything it starts inherits. There is no
pid file that could be wrong.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchcore.errors import UserError
from benchcore.running.slurm.scheduler import OF_SERVICES
from flows.server import supervisor

_GRACE_S = 15.0
_MAX_TEXT = 600
_started: dict[str, subprocess.Popen[bytes]] = {}
"""By mark. They outlive this process; Python would warn if nothing here referred to them."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A process to keep running; its log is `NAME.log` in the folder. If it ends it is started
    again, after pauses that grow from `first_pause_s`."""

    name: str
    folder: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    first_pause_s: float = 1.0

    @property
    def log(self) -> Path:
        """The output of the service and its children."""
        return self.folder / f"{self.name}.log"

    @property
    def mark(self) -> str:
        """Distinguishes its processes from those of other services and folders."""
        return f"{self.folder}:{self.name}"


@dataclass(frozen=True, order=True)
class _Process:
    began: int
    """A process and its start in clock ticks since boot: with the id it identifies a process, as
    ids are reused."""
    pid: int
    parent: int = field(compare=False)
    environment: list[bytes] = field(compare=False)


def start(service: Service) -> int:
    """Start the service's supervisor, out of reach of this terminal's Ctrl-C, with an empty log;
    its process id."""
    service.folder.mkdir(parents=True, exist_ok=True)
    supervisor.rotate(service.log, min_bytes=1)
    supervise = (sys.executable, "-I", "-S", supervisor.__file__)
    with service.log.open("ab") as log:
        process = subprocess.Popen(
            [*supervise, str(service.log), str(service.first_pause_s), *service.command],
            env={**os.environ, **service.environment, OF_SERVICES: service.mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=service.folder,
            start_new_session=True,
        )
    _started[service.mark] = process
    return process.pid


def find(service: Service) -> list[int]:
    """The ids of its processes, oldest first: the supervisor, its command, what that started."""
    return [each.pid for each in sorted(_find(service))]


def _find(service: Service) -> set[_Process]:
    mark = f"{OF_SERVICES}={service.mark}".encode()
    listed = set(_list_processes())
    found = {each for each in listed if mark in each.environment}
    while more := {each for each in listed if each.parent in {e.pid for e in found}} - found:
        found |= more
    return {each for each in found if each.pid != os.getpid()}


def _list_processes() -> Iterator[_Process]:
    """All processes but zombies, which have ended."""
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile, or be another user's.
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                environment = (entry / "environ").read_bytes().split(b"\0")
                yield _Process(int(fields[19]), int(entry.name), int(fields[1]), environment)


def stop(service: Service) -> bool:
    """End the service and everything it started: SIGTERM first, SIGKILL after 15 s. Whether
    anything was running."""
    found = _find(service)
    if found:
        _signal([min(found)], signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    # Also those whose parent has gone and that have no mark.
    while left := (found & set(_list_processes())) | _find(service):
        if time.monotonic() >= until:  # frozen processes ignore SIGTERM, too
            _signal(left, signal.SIGKILL)
        time.sleep(0.1)
    if started := _started.pop(service.mark, None):
        started.wait()
    return bool(found)


def _signal(
    processes: Iterator[_Process] | Sequence[_Process] | set[_Process], number: int
) -> None:
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, number)


def wait_until(service: Service, ready: Callable[[], bool], timeout_s: float) -> None:
    """Wait until a service is ready. Raises UserError with the end of its log if it ends or takes
    too long; one that this process started and that ends is stopped."""
    until = time.monotonic() + timeout_s
    while not ready():
        ended = _has_ended(service)
        if ended or time.monotonic() >= until:
            if ended:
                stop(service)
            what = "has ended" if ended else f"is not ready after {timeout_s:.0f} s"
            raise UserError(
                f"wanted {service.name} to run, but it {what}; see {str(service.log)!r}, which "
                f"ends with: {_read_end(service.log)}"
            )
        time.sleep(0.2)


def _has_ended(service: Service) -> bool:
    """Whether nothing of it runs; of one that this process started, whether its supervisor ended or
    had to start it again. A process that has just been started has no mark yet."""
    started = _started.get(service.mark)
    if started is None:
        return not find(service)
    log = service.log.read_text(encoding="utf-8", errors="replace")
    return started.poll() is not None or supervisor.ENDED in log


def _read_end(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return " ".join(text.split())[-_MAX_TEXT:] or "nothing"


def check_port(port: int, option: str) -> None:
    """Raises UserError if the port is taken on loopback."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise UserError(
            f"wanted to listen on port {port} of 127.0.0.1, but {error}; stop the program that "
            f"uses it, or choose another port with {option}"
        ) from error
