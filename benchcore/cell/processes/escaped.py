"""Finds and ends processes that left their contender's group. They would run while it is frozen,
and slow the other side down.

Whatever a contender starts stays below the conductor, which adopts processes that lost their
parent. So any process group that the harness did not make is an escaped one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ROUNDS = 20
"""How often it is looked again for what was started meanwhile."""
_ENDED = ("Z", "X")
_adopts = False


def adopt_orphans() -> None:
    """Become the parent of all processes below this one that lose theirs. Only then are processes
    ended: elsewhere, such as in a test, they may belong to others."""
    global _adopts
    if sys.platform == "linux":
        set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
        _adopts = ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0


class OwnSettings:
    """Settings of this process that its children inherit. A child may change them, and so slow down
    those that start later."""

    def __init__(self) -> None:
        self._read()

    def _read(self) -> None:
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._limits = {each: resource.getrlimit(each) for each in _LIMITS}
        self._cpus = os.sched_getaffinity(0) if sys.platform == "linux" else set()

    def restore(self) -> list[str]:
        """Undo what was changed since; a text for each kind."""
        changed = []
        if os.getpriority(os.PRIO_PROCESS, 0) != self._nice:
            changed.append("changed the conductor's priority")
            with suppress(OSError):  # only root may raise it again
                os.setpriority(os.PRIO_PROCESS, 0, self._nice)
        if self._cpus and (cpus := os.sched_getaffinity(0)) != self._cpus:
            with suppress(OSError):  # none of them may be left
                os.sched_setaffinity(0, self._cpus)
            # What the machine took away does not come back, and more CPUs are no harm.
            if os.sched_getaffinity(0) == self._cpus and self._cpus - cpus:
                changed.append("changed the conductor's CPUs")
        for each, limits in self._limits.items():
            if resource.getrlimit(each) != limits:
                changed.append("changed the conductor's limits")
                with suppress(OSError, ValueError):
                    resource.setrlimit(each, limits)
        self._read()  # what can't be undone is named once
        return sorted(set(changed))


_LIMITS = tuple(number for name, number in vars(resource).items() if name.startswith("RLIMIT_"))


@dataclass(frozen=True, kw_only=True)
class Escaped:
    """A process outside of all groups of the harness."""

    pid: int
    name: str


def end_escaped(groups: Collection[int]) -> list[str]:
    """End all processes below this one that are in none of these process groups, nor in its own;
    their names."""
    names: list[str] = []
    for _ in range(_ROUNDS if _adopts else 0):
        found = list_escaped({*groups, os.getpgrp()})
        if not found:
            break
        names += [each.name for each in found]
        for each in found:
            with suppress(OSError):  # it has ended
                os.kill(each.pid, signal.SIGKILL)
        for each in found:
            with suppress(OSError):  # not adopted: its parent waits for it
                os.waitpid(each.pid, 0)
    return sorted(set(names))


def list_escaped(groups: Collection[int]) -> list[Escaped]:
    """Processes below this one that run in none of these groups."""
    rows, below = dict(_read_processes()), {os.getpid()}
    while more := {pid for pid, row in rows.items() if row.parent in below} - below:
        below |= more
    return [
        Escaped(pid=pid, name=rows[pid].name)
        for pid in sorted(below - {os.getpid()})
        if rows[pid].group not in groups and rows[pid].state not in _ENDED
    ]


@dataclass(frozen=True, kw_only=True)
class _Row:
    name: str
    state: str
    parent: int
    group: int


def _read_processes() -> list[tuple[int, _Row]]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            head, _, tail = each.read_text(errors="replace").rpartition(")")
            state, parent, group, *_ = tail.split()
            name = head.partition("(")[2]
            row = _Row(name=name, state=state, parent=int(parent), group=int(group))
            found.append((int(each.parent.name), row))
    return found
