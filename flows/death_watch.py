"""Ends a process once whoever started this program is gone, even if by SIGKILL: its argument is the
process's id, its standard input a pipe whose other end the starter holds."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

_GRACE_S = 10.0


def main() -> None:
    """A process id that is given to another process meanwhile is not mistaken for it."""
    watched = os.pidfd_open(int(sys.argv[1]))
    sys.stdin.buffer.read()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched, number)
        if select.select([watched], [], [], _GRACE_S)[0]:
            return


if __name__ == "__main__":
    main()
