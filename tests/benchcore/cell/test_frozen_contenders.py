"""Contenders that another process continues while they wait, as Slurm's resume does."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from duel_orders import copy_inside_ring, ignore_host_load, make_contender, make_order

from benchcore.cell.measure.degraded import find_degraded
from benchcore.running.duel_process import run_duel
from benchcore.state import open_state
from benchcore.store.incoming.documents import read_document


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            found += map(int, task.read_text().split())
    return found


class Storm:
    """Sends SIGCONT every few milliseconds to all contenders, in rounds 1 to 5 of a start."""

    def __init__(self) -> None:
        self._on, self._ended = threading.Event(), threading.Event()
        self.num_sent = 0
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Storm:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._on.set()
        self._thread.join()

    def follow(self, event: dict[str, Any]) -> None:
        """Begin and end with the rounds that the conductor reports."""
        if event["event"] == "round":
            (self._on.set if 1 <= event["round"] < 6 else self._on.clear)()

    def _send(self) -> None:
        while self._on.wait() and not self._ended.is_set():
            for contender in [c for each in _children(os.getpid()) for c in _children(each)]:
                with suppress(ProcessLookupError):
                    os.killpg(contender, signal.SIGCONT)
                    self.num_sent += 1
            time.sleep(0.003)


def test_a_duel_ends_in_a_storm_of_sigcont_and_its_blocks_are_void(tmp_path: Path) -> None:
    state, snapshot = open_state(tmp_path / "state"), tmp_path / "snapshot"
    copy_inside_ring(snapshot)
    ignore_host_load(snapshot)
    contenders = [make_contender("a"), make_contender("b")]
    limits = {"starts": 1, "rounds": 14, "block_ms": 40.0, "budget_s": 0.0, "passes": False}
    with Storm() as storm:
        path = run_duel(make_order(*contenders, **limits), state, snapshot, storm.follow)
    assert storm.num_sent > 20
    for contender in read_document(path)["contenders"]:
        assert contender["status"] == "ok"
        (start,) = contender["starts"]
        assert start["latency_ns"]
        void = find_degraded(start["blocks"])
        assert set(void.values()) == {"1 waiting contenders were not frozen"}
        assert {3, 4} <= set(void) <= set(range(1, 10))
        assert len(start["blocks"]) == 14
