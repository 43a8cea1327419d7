"""Runs one duel here: writes the order, starts the conductor, and follows its progress."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchcore.cell.processes.launch import conductor_environ
from benchcore.planning.catalog import count_devices
from benchcore.protocol import DuelOrder, encode, write_json
from benchcore.running.device_lock import hold_device
from benchcore.running.heartbeat import HEARTBEAT_LIMIT_S, StuckProcessError, follow_progress
from benchcore.state import State
from benchcore.store.incoming.packs import unpack

_DOCUMENT = "result.json"


class ConductorFailedError(Exception):
    """The conductor ended without a document: an infrastructure failure, not a result."""


class _HungError(ConductorFailedError):
    """The conductor was ended: it was stopped, or made no progress."""


class OutOfTimeError(Exception):
    """The allocation would have ended before the duel or proof: no result, and no failure."""


class DeviceBusyError(OutOfTimeError):
    """Another process used the device until then."""


def result_path(state: State, campaign: str, duel_run: str) -> Path:
    """The path of a duel run's document in the spool. A campaign that was packed is unpacked."""
    folder = state.spool / campaign
    unpack(folder)
    return folder / f"{duel_run}.json"


def run_duel(
    order: DuelOrder,
    state: State,
    snapshot: Path,
    report: Callable[[dict[str, Any]], None],
    *,
    ends_at: float | None = None,
) -> Path:
    """Measure one duel, unless its document exists; returns its path in the spool.

    Two jobs may measure a duel at the same time, if Slurm lost a node that still runs: each has its
    own scratch folder, and the first document stays. A duel is measured once more if something
    else killed a contender, or it hung. If it hangs again, all contenders have the status timeout.
    Raises OutOfTimeError if it has not ended at `ends_at` (seconds since the epoch), and
    ConductorFailedError with the end of the conductor's log if it leaves no document.
    """
    result = result_path(state, order.campaign, order.duel_run)
    if result.exists():
        return result
    count = count_devices(order.workload, order.case)
    waiting = functools.partial(report, {"event": "waiting"})
    with hold_device(order.device, waiting, ends_at, count=count) as held:
        if not held:
            raise DeviceBusyError("another process used the device until the time limit")
        if not result.exists():  # it was measured while this process waited
            _measure(order, state, snapshot, report, ends_at)
    return result


def _measure(
    order: DuelOrder,
    state: State,
    snapshot: Path,
    report: Callable[[dict[str, Any]], None],
    ends_at: float | None,
) -> None:
    duels = state.campaigns / order.campaign / "duels"
    conduct = functools.partial(_conduct, order, duels, snapshot, report, ends_at)
    scratch, suspects = None, [each.name for each in order.contenders]
    with suppress(_HungError):
        scratch = conduct()
        suspects = _list_killed(scratch)
    if scratch is None or suspects:
        report({"event": "again", "contenders": suspects})
        try:
            scratch = conduct()
        except _HungError as error:
            scratch = conduct(str(error))
    _publish(scratch, result_path(state, order.campaign, order.duel_run), duels / order.duel_run)


def _list_killed(scratch: Path) -> list[str]:
    """The contenders that something outside the duel killed."""
    document = json.loads((scratch / _DOCUMENT).read_text(encoding="utf-8"))
    return [each["name"] for each in document["contenders"] if each["status"] == "killed"]


def _conduct(
    order: DuelOrder,
    duels: Path,
    snapshot: Path,
    report: Callable[[dict[str, Any]], None],
    ends_at: float | None,
    ended: str | None = None,
) -> Path:
    """Run a conductor; returns its scratch folder, with the document. Raises as `run_duel`. If it
    was `ended`, for this reason, another one only writes the document that states it."""
    scratch = duels / f"{order.duel_run}.{uuid.uuid4().hex[:8]}"
    scratch.mkdir(parents=True)
    order_path, document = scratch / "order.json", scratch / _DOCUMENT
    write_json(order_path, encode(order))
    command = [_conductor_python(order), "-P", "-s", "-m", "benchcore.cell"]
    role, reason = ("conductor", []) if ended is None else ("ended", [ended])
    with (scratch / "conductor.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, role, str(order_path), str(document), str(scratch), *reason],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**conductor_environ(snapshot), **_find_job()},
        )
        with end_in_time(process, ends_at, scratch) as overdue:
            stuck = _follow(process, report, HEARTBEAT_LIMIT_S if ended else _longest_step_s(order))
        code = process.returncode
    if document.exists():
        return scratch
    if overdue.is_set():
        raise OutOfTimeError("the duel would not have ended before its allocation")
    if stuck is not None:
        raise _HungError(f"the conductor was ended: {stuck}")
    message = (scratch / "conductor.log").read_text(errors="replace")[-4000:]
    raise ConductorFailedError(f"the conductor ended with {code} and no document: {message}")


def _find_job() -> dict[str, str]:
    """The variable by which a conductor records the Slurm job around it."""
    return {key: os.environ[key] for key in ("SLURM_JOB_ID",) if key in os.environ}


def _publish(scratch: Path, result: Path, logs: Path) -> None:
    """Move a document to the spool, unless another attempt's is there, and its logs next to it."""
    document = scratch / _DOCUMENT
    result.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(document, result)  # unlike a rename, it never replaces
    except FileExistsError:
        return
    document.unlink()
    shutil.rmtree(logs, ignore_errors=True)  # its document was removed from the spool
    scratch.rename(logs)


@contextmanager
def end_in_time(
    process: subprocess.Popen[Any], ends_at: float | None, scratch: Path
) -> Iterator[threading.Event]:
    """Kill a process and its contenders when the body ends, or at `ends_at` (seconds since the
    epoch), which sets the event; then wait for it. `scratch` has the caches of its contenders."""
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
        if process.wait() != 0:
            _kill_left(scratch)


def _kill_left(scratch: Path) -> None:
    """Kill the processes whose variables name this folder. A contender ends with its conductor, but
    not a helper that its compiler started, which a frozen contender's group leaves stopped."""
    name = os.fsencode(scratch)
    for variables in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or it has ended
            if name in variables.read_bytes():
                os.kill(int(variables.parent.name), signal.SIGKILL)


def _conductor_python(order: DuelOrder) -> str:
    """The first contender's interpreter on this node, as evidence needs its numpy; else ours, which
    can read the workload's cases."""
    for contender in order.contenders:
        python = contender.environment.python
        if contender.environment_failure is None and Path(python).exists():
            return python
    return sys.executable


def _follow(
    process: subprocess.Popen[bytes], report: Callable[[dict[str, Any]], None], stuck_s: float
) -> str | None:
    """Report a conductor's progress until it ends; why it must be ended, if it hangs."""
    assert process.stdout is not None
    with process.stdout:
        try:
            for event in follow_progress(process.stdout, stuck_s):
                report(event)
        except StuckProcessError as error:
            return str(error)
    process.wait()
    return None


def _longest_step_s(order: DuelOrder) -> float:
    """No step of a conductor waits longer between two events: a pass sends each contender
    a few requests, each with its own limit."""
    limits = order.limits
    return 10 * len(order.contenders) * (limits.prepare_timeout_s + limits.block_timeout_s)
