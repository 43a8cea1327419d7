"""A process without a heartbeat, or without progress, is noticed; one that reports is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import pytest

from benchcore.running import heartbeat
from benchcore.running.heartbeat import StuckProcessError, follow_progress


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, writer


def test_events_come_through_without_heartbeats(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    writer.write(b'{"event": "alive"}\n{"event": "round"}\n{"share"')
    writer.write(b": 0.5}\n")
    writer.close()
    assert list(follow_progress(reader, 60)) == [{"event": "round"}, {"share": 0.5}]


def test_silence_is_noticed(
    pipe: tuple[IO[bytes], IO[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_LIMIT_S", 0.1)
    monkeypatch.setattr(heartbeat, "_TICK_S", 0.02)
    with pytest.raises(StuckProcessError, match="no heartbeat"):
        list(follow_progress(pipe[0], 60))


def test_a_process_that_only_beats_is_stuck(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    pipe[1].write(b'{"event": "alive"}\n' * 40)
    with pytest.raises(StuckProcessError, match="no progress for 60 s"):
        list(follow_progress(pipe[0], 60))
