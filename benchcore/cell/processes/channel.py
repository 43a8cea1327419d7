"""Messages between conductor and contender: one line of JSON each, over a pair of pipes."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

Message = dict[str, Any]


class ChannelClosedError(Exception):
    """The other side closed its end."""


class ChannelTimeoutError(Exception):
    """No message came within the time-out."""


class ChannelGarbageError(Exception):
    """A line came that is not a message."""


class Channel:
    """Sends and receives messages on two file descriptors; owns neither thread nor process."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._pending = b""

    def send(self, message: Message) -> None:
        """Write one message. Raises ChannelClosedError if the other side has closed its end."""
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.write_fd, line) :]
        except BrokenPipeError as error:
            raise ChannelClosedError from error

    def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for one message; None waits forever."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            self._read_more(deadline)
        line, self._pending = self._pending.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ChannelGarbageError(f"wanted a JSON message, got {line[:200]!r}") from error
        if not isinstance(message, dict):
            raise ChannelGarbageError(f"wanted a JSON object, got {line[:200]!r}")
        return message

    def _read_more(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self.read_fd], [], [], left)
        if not readable:
            raise ChannelTimeoutError
        chunk = os.read(self.read_fd, 65536)
        if not chunk:
            raise ChannelClosedError
        self._pending += chunk

    def close(self) -> None:
        """Close both of our ends."""
        os.close(self.read_fd)
        os.close(self.write_fd)
