"""Keeps a command running: `supervisor.py LOG FIRST_PAUSE_S COMMAND...`. Standard library only.

A command that ends is started again. While it keeps ending within a minute, the pause before each
start doubles, up to five minutes. Each end is a line in the log, which this process rotates.
SIGTERM ends both. Between signals and its look at the log once a minute, it sleeps.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ENDED = " ended with exit code "
"""Part of the line that reports an end."""
_MAX_PAUSE_S = 300.0
_STABLE_S = 60.0
_LOOK_S = 60.0
_MAX_LOG_BYTES = 10_000_000
_NUM_OLD_LOGS = 3
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def main() -> None:
    """Run the command until SIGTERM."""
    log, first_pause_s, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pause_s = first_pause_s
    while True:
        began = time.monotonic()
        code = _run(command, log)
        if code is None:
            return
        ran_s = time.monotonic() - began
        if ran_s >= _STABLE_S:
            pause_s = first_pause_s
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"{ENDED}{code} after {ran_s:.0f} s; it starts again in {pause_s:g} s"
        os.write(1, f"{now} deadheat: {log.stem}{text}\n".encode())
        if signal.sigtimedwait({signal.SIGTERM}, pause_s):
            return
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def _run(command: list[str], log: Path) -> int | None:
    """The command's exit code; None after SIGTERM, which it is sent too."""
    process = subprocess.Popen(
        command, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    )
    while process.poll() is None:
        received = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        rotate(log, _MAX_LOG_BYTES)
        if received and received.si_signo == signal.SIGTERM:
            process.terminate()
            process.wait()
            return None
    return process.returncode


def rotate(log: Path, min_bytes: int) -> None:
    """Move a log's text to `LOG.1`, and so on, if it has that many bytes. The log itself is
    emptied, not renamed: its writers continue."""
    if not log.exists() or log.stat().st_size < min_bytes:
        return
    for number in range(_NUM_OLD_LOGS, 1, -1):
        older, newer = (log.with_name(f"{log.name}.{each}") for each in (number, number - 1))
        if newer.exists():
            newer.replace(older)
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


if __name__ == "__main__":
    main()
