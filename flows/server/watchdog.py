"""Runs a server (the command in the arguments) for as long as the starter of this program lives:
standard input is a pipe that the starter holds open. A server that ends is started again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from typing import NoReturn

_GRACE_S = 10.0
_PAUSE_S = 1.0
_QUICK_S = 60.0
_MOST_QUICK = 5
"""A server that dies so often within _QUICK_S each does not come up: give up."""


def main() -> None:
    """The server dies with this process too, even where SIGKILL ends it."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    quick = 0
    while quick < _MOST_QUICK:
        began = time.monotonic()
        if not _serve(sys.argv[1:]):
            return
        quick = quick + 1 if time.monotonic() - began < _QUICK_S else 0
        if select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            return


def _serve(command: list[str]) -> bool:
    """Run the server once. Whether it ended by itself; False = the starter has gone."""
    parent = os.getpid()
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=lambda: _die_with(parent)
    )
    try:
        watched = os.pidfd_open(server.pid)  # process ids are reused
        ended = select.select([sys.stdin, watched], [], [])[0]
        os.close(watched)
        return sys.stdin not in ended
    finally:
        _end(server)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_GRACE_S)
    server.kill()
    server.wait()


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
