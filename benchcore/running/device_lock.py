"""Measuring processes of one machine wait for each other: one lock per device."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from benchcore import variables
from benchcore.running.slurm.slots import name_slot

_POLL_S = 0.2
_MOST_S = 12 * 3600.0
"""A night ends, even if the process that measures stays stopped."""


@contextmanager
def hold_device(
    device: str, waiting: Callable[[], None], ends_at: float | None = None
) -> Iterator[bool]:
    """Hold the device while the body measures; False if it was not free before `ends_at` (seconds
    since the epoch), or for _MOST_S seconds. `waiting` is called once if another process holds it.

    The kernel frees the lock of a process that dies.
    """
    path = _lock_folder() / f"{_identify(device)}.lock"
    lock = FileLock(path, mode=0o666)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            left_s = _MOST_S if ends_at is None else max(0.0, ends_at - time.time())
            lock.acquire(timeout=min(left_s, _MOST_S), poll_interval=_POLL_S)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _identify(device: str) -> str:
    """A GPU by its name and by which GPUs are visible; a CPU by the cores that this process may
    use, as two allocations on one node don't share theirs, and by its slot, as an allocation with
    fewer cores than GPUs shares them on purpose."""
    if device == "cpu":
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        facts = f"{cores}{name_slot()}"
    else:
        facts = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    shown = device.replace(":", "-")
    return f"{shown}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def _lock_folder() -> Path:
    """Open to all users of the machine, as they share its devices."""
    named = variables.LOCKS.read()
    folder = Path(named) if named else Path(tempfile.gettempdir()) / "deadheat-locks"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # another user made it
        folder.chmod(0o777)
    return folder
