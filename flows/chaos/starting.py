"""Starts a night: as a command, or as the fork of a process that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_CONTEXT = multiprocessing.get_context("forkserver")


class RunningNight(Protocol):
    """A running night; `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code. Raises subprocess.TimeoutExpired."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        ...


def heed_interrupts() -> None:
    """Let nights end by SIGINT. A shell has its jobs in the background ignore it, and they would
    inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def start_command(
    command: tuple[str, ...], environ: Mapping[str, str], stderr: Path
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own."""
    with stderr.open("wb") as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env=dict(environ),
            start_new_session=True,
        )


class ForkedNight:
    """A night of the measuring layer that costs no imports, which take two seconds."""

    def __init__(self, arguments: tuple[str, ...], environ: Mapping[str, str], log: Path) -> None:
        _CONTEXT.set_forkserver_preload(["flows.chaos.night"])
        self._process = _CONTEXT.Process(target=_run, args=(arguments, dict(environ), str(log)))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """See `RunningNight`."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """See `RunningNight`."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked night", timeout or 0)
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        """See `RunningNight`."""
        if self._process.exitcode is None:
            os.kill(self.pid, sig)


def _run(arguments: tuple[str, ...], environ: dict[str, str], log: str) -> None:
    """Run the night in the fork, with what a new process would have."""
    from flows.chaos.night import main

    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(descriptor, 2)
    os.environ.clear()
    os.environ.update(environ)
    try:
        main(*arguments)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.stderr.flush()
