"""Reads the progress of a conductor or a proof, and notices one that is stopped or hangs."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from typing import IO, Any

from benchcore.protocol import BEAT_S

HEARTBEAT_LIMIT_S = 60.0
"""Without any line: the process is stopped. It reports that it is alive every BEAT_S seconds."""
_TICK_S = 1.0


class StuckProcessError(Exception):
    """The process is stopped, or has made no progress for longer than any of its steps may take."""


def follow_progress(stream: IO[bytes], stuck_s: float) -> Iterator[dict[str, Any]]:
    """The events of a process until it closes its pipe. Raises StuckProcessError after
    HEARTBEAT_LIMIT_S seconds without a line, or `stuck_s` seconds with only its heartbeats.

    Counts only its own waiting and the process's heartbeats, not the clock: when Slurm suspends
    both, nothing is counted.
    """
    idle_s = 0.0
    for line in _read_lines(stream):
        event = json.loads(line)
        if event.get("event") != "alive":
            idle_s = 0.0
            yield event
        elif (idle_s := idle_s + BEAT_S) > stuck_s:
            raise StuckProcessError(f"it made no progress for {stuck_s:g} s")


def _read_lines(stream: IO[bytes]) -> Iterator[bytes]:
    rest, silent_s = b"", 0.0
    while True:
        if not select.select([stream], [], [], _TICK_S)[0]:
            silent_s += _TICK_S
            if silent_s >= HEARTBEAT_LIMIT_S:
                raise StuckProcessError(f"it sent no heartbeat for {HEARTBEAT_LIMIT_S:g} s")
            continue
        silent_s = 0.0
        chunk = os.read(stream.fileno(), 65536)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
