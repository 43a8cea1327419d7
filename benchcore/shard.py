"""Runs duels in this allocation: writes the order, starts the conductor, follows its progress."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
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

    Raises OutOfTimeError if it is not over at `ends_at` (seconds since the epoch), and
    ConductorFailedError with the conductor's last words if it leaves no document.
    """
    result = result_path(state, order.campaign, order.duel_run)
    if result.exists():
        return result
    result.parent.mkdir(parents=True, exist_ok=True)
    scratch = state.campaigns / order.campaign / "duels" / order.duel_run
    scratch.mkdir(parents=True, exist_ok=True)
    order_path = scratch / "order.json"
    write_json(order_path, encode(order))
    command = [_conductor_python(order), "-P", "-s", "-m", "benchcore.cell", "conductor"]
    with (scratch / "conductor.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(order_path), str(result), str(scratch)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(snapshot)},
        )
        overdue = threading.Event()
        alarm = threading.Timer(_seconds_until(ends_at), _end, (process, overdue))
        alarm.daemon = True
        alarm.start()
        try:
            _follow(process, report)
        finally:
            alarm.cancel()
            process.kill()
            code = process.wait()
    if not result.exists() and overdue.is_set():
        raise OutOfTimeError("it would not have ended before its allocation")
    if not result.exists():
        words = (scratch / "conductor.log").read_text(errors="replace")[-4000:]
        raise ConductorFailedError(f"the conductor ended with {code} and no document: {words}")
    return result


def _seconds_until(ends_at: float | None) -> float:
    return threading.TIMEOUT_MAX if ends_at is None else max(0.0, ends_at - time.time())


def _end(process: subprocess.Popen[bytes], overdue: threading.Event) -> None:
    overdue.set()
    process.kill()


def _conductor_python(order: DuelOrder) -> str:
    """The first contender's interpreter that exists: it has numpy where evidence needs it."""
    for contender in order.contenders:
        if contender.environment_failure is None:
            return contender.environment.python
    return order.contenders[0].environment.python


def _follow(process: subprocess.Popen[bytes], report: Callable[[dict[str, Any]], None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            report(json.loads(line))
    process.wait()
