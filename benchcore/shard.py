"""Runs duels in this allocation: writes the order, starts the conductor, follows its progress."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchcore.protocol import DuelOrder, encode, write_json
from benchcore.state import State


class ConductorFailedError(Exception):
    """The conductor itself died: an infrastructure failure, and no result."""


class OutOfTimeError(Exception):
    """The allocation was about to end before the duel did: no result, and nobody's fault."""


def result_path(state: State, campaign: str, duel_run: str) -> Path:
    """Where a duel run's document lies in the spool."""
    return state.spool / campaign / f"{duel_run}.json"


def run_duel(
    order: DuelOrder,
    state: State,
    snapshot: Path,
    report: Callable[[dict[str, Any]], None],
    *,
    ends_at: float | None = None,
) -> Path:
    """Measure one duel and return its document in the spool; one that is there is not repeated.

    Two jobs may measure a duel at a time, where Slurm lost a node that lives on: each has a scratch
    folder of its own, and the document that is there first stays.
    Raises OutOfTimeError if it is not over at `ends_at` (seconds since the epoch), and
    ConductorFailedError with the conductor's last words if it leaves no document.
    """
    result = result_path(state, order.campaign, order.duel_run)
    if result.exists():
        return result
    duels = state.campaigns / order.campaign / "duels"
    scratch = duels / f"{order.duel_run}.{uuid.uuid4().hex[:8]}"
    scratch.mkdir(parents=True)
    order_path, document = scratch / "order.json", scratch / "result.json"
    write_json(order_path, encode(order))
    command = [_conductor_python(order), "-P", "-s", "-m", "benchcore.cell", "conductor"]
    with (scratch / "conductor.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(order_path), str(document), str(scratch)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(snapshot)},
        )
        with end_in_time(process, ends_at) as overdue:
            _follow(process, report)
        code = process.returncode
    if document.exists():
        _publish(scratch, document, result, duels / order.duel_run)
        return result
    if overdue.is_set():
        raise OutOfTimeError("it would not have ended before its allocation")
    words = (scratch / "conductor.log").read_text(errors="replace")[-4000:]
    raise ConductorFailedError(f"the conductor ended with {code} and no document: {words}")


def _publish(scratch: Path, document: Path, result: Path, kept: Path) -> None:
    """Put a document into the spool unless another attempt's is there, and keep what is beside it
    where people look for it."""
    result.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(document, result)  # unlike a rename, it never replaces
    except FileExistsError:
        return
    document.unlink()
    shutil.rmtree(kept, ignore_errors=True)  # of a document that somebody took out of the spool
    scratch.rename(kept)


@contextmanager
def end_in_time(process: subprocess.Popen[Any], ends_at: float | None) -> Iterator[threading.Event]:
    """Kill a process at `ends_at` (seconds since the epoch), which sets the event, and whenever the
    body is left; its contenders go with it. It has been waited for then."""
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        process.kill()

    left_s = threading.TIMEOUT_MAX if ends_at is None else max(0.0, ends_at - time.time())
    alarm = threading.Timer(left_s, end)
    alarm.daemon = True
    alarm.start()
    try:
        yield overdue
    finally:
        alarm.cancel()
        process.kill()
        process.wait()


def _conductor_python(order: DuelOrder) -> str:
    """The first contender's interpreter that is on this node: it has numpy where evidence needs it.
    Where no environment is, ours: a bare interpreter can't even read the workload's cases."""
    for contender in order.contenders:
        python = contender.environment.python
        if contender.environment_failure is None and Path(python).exists():
            return python
    return sys.executable


def _follow(process: subprocess.Popen[bytes], report: Callable[[dict[str, Any]], None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            report(json.loads(line))
    process.wait()
