"""Ends a process when the starter of this program has gone, even by SIGKILL. The argument is the
process's id; standard input is a pipe that the starter holds open."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

_GRACE_S = 10.0


def main() -> None:
    """Uses a pidfd, as process ids are reused."""
    watched = os.pidfd_open(int(sys.argv[1]))
    sys.stdin.buffer.read()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched, number)
        if select.select([watched], [], [], _GRACE_S)[0]:
            return


if __name__ == "__main__":
    main()
