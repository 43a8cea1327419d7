"""Measuring processes of one machine wait for each other: one lock per CPU or GPU (its UUID)."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from benchcore import variables
from benchcore.cell.measure import gpu
from benchcore.device_names import parse_device
from benchcore.running.slurm.slots import list_gpus, name_slot

_POLL_S = 0.2
LONGEST_MEASURING_WAIT_S = 12 * 3600.0
"""For a device, or a proof that another process computes: a night ends, even if the process that
measures stays stopped."""


@contextmanager
def hold_device(
    device: str, waiting: Callable[[], None], ends_at: float | None = None, *, count: int = 1
) -> Iterator[bool]:
    """Hold the device while the body measures, or `count` GPUs from this one on; False if they were
    not free before `ends_at` (seconds since the epoch), or for LONGEST_MEASURING_WAIT_S seconds.
    `waiting` is called for each that another process holds.

    The kernel frees the locks of a process that dies.
    """
    over = time.time() + LONGEST_MEASURING_WAIT_S
    over = over if ends_at is None else min(over, ends_at)
    with ExitStack() as held:
        for name in _identify(device, count):
            lock = FileLock(_lock_folder() / f"{name}.lock", mode=0o666)
            if not _acquire(lock, waiting, over):
                yield False
                return
            held.callback(lock.release)
        yield True


def _acquire(lock: FileLock, waiting: Callable[[], None], over: float) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waiting()
        try:
            lock.acquire(timeout=max(0.0, over - time.time()), poll_interval=_POLL_S)
        except Timeout:
            return False
    return True


def _identify(device: str, count: int) -> list[str]:
    """The names of the locks, in the same order for every process. A GPU is its UUID. A CPU is the
    cores that this process may use, as two allocations on one node don't share theirs. Its slot is
    part of the name, as an allocation with fewer cores than GPUs shares them on purpose."""
    found = parse_device(device)
    facts = [""]
    if found.kind == "cpu":
        facts = [",".join(map(str, sorted(os.sched_getaffinity(0)))) + name_slot()]
    elif found.kind == "cuda":
        first = found.ordinal
        facts = _list_gpus()[first : first + count] or [f"absent {first}"]
    return sorted(f"{found.kind}-{hashlib.sha256(e.encode()).hexdigest()[:12]}" for e in facts)


def _list_gpus() -> list[str]:
    """The UUIDs of this process's GPUs, in CUDA's order. Their numbers name nothing: Slurm may
    count the GPUs of every job from 0. Without NVML, as CUDA_VISIBLE_DEVICES names them."""
    gpus = gpu.list_gpus() if gpu.survey()[0] else []
    boards = [each["uuid"] or f"number {index}" for index, each in enumerate(gpus)]
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return boards
    return [
        boards[int(each)] if each.isdigit() and int(each) < len(boards) else each
        for each in list_gpus(os.environ)
    ]


def _lock_folder() -> Path:
    """Open to all users of the machine, as they share its devices."""
    named = variables.LOCKS.read()
    folder = Path(named) if named else Path(tempfile.gettempdir()) / "deadheat-locks"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # another user made it
        folder.chmod(0o777)
    return folder
