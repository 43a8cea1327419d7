"""The processes of a night, found by its state folder, which is in their arguments or variables."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchcore.running.slurm.scheduler import OF_SERVICES

_OF_SERVICES = f"{OF_SERVICES}=".encode()
_ENDING_S = 10.0
"""Children of a process that was killed end a moment after it."""


@dataclass(frozen=True)
class Process:
    """A process that runs, and its arguments."""

    pid: int
    arguments: tuple[str, ...]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def list_processes(root: Path, *, services: bool = False) -> Iterator[Process]:
    """Every process that was started with this folder; those of services, which outlive a night,
    only if asked. One that has ended, but is not reaped, has neither arguments nor variables."""
    mark = str(root).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (folder / "cmdline").read_bytes()
            environ = (folder / "environ").read_bytes()
            is_service = _OF_SERVICES in environ
            if (services or not is_service) and (mark in arguments or mark in environ):
                shown = arguments.decode(errors="replace").rstrip("\0").split("\0")
                yield Process(int(folder.name), tuple(shown))


def end_orphans(root: Path, *, services: bool = False) -> list[Process]:
    """The processes that outlive their night by more than a moment; they are killed."""
    deadline = time.monotonic() + _ENDING_S
    while found := [*list_processes(root, services=services)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for each in found:
        each.send(signal.SIGKILL)
    return found
