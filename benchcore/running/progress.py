"""A campaign's progress as a file of JSON lines, which can be read while the campaign runs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ProgressLog:
    """Appends events to one file. Several writers may share it: each line is one write."""

    path: Path

    def append(self, **event: Any) -> None:
        """Add one event with the time in seconds since the epoch."""
        line = json.dumps({"time": time.time(), **event}, default=str) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)


class ProgressReader:
    """Reads new events: from the start of the file, or only those added from now on."""

    def __init__(self, path: Path, *, from_now: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_now else 0

    def read_new(self) -> list[dict[str, Any]]:
        """The events added since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            whole, newline, _ = stream.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [event for line in whole.splitlines() if (event := _read_event(line))]


def _read_event(line: bytes) -> dict[str, Any] | None:
    """None for a line that a crash has damaged: it costs this event, not the whole log."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
