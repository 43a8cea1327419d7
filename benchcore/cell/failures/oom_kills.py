"""Whether the kernel killed a process because memory ran out, by its control group and its log."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from benchcore.cell.failures.kernel_log import KERNEL_LOG, KernelLog

_MEMBERSHIP = Path("/proc/self/cgroup")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


class OomKills:
    """The kernel's kills in our control group from now on; the folders differ only in tests."""

    def __init__(
        self,
        membership: Path = _MEMBERSHIP,
        groups: Path = _CONTROL_GROUPS,
        log: Path = KERNEL_LOG,
    ) -> None:
        self._counter = _find_counter(membership, groups)
        self._before = self._count()
        self._log = KernelLog(None, log)

    def include(self, pid: int) -> bool | None:
        """Whether the kernel killed this process; None = neither counter nor log can be read.

        The counter is that of the group, which our processes share. The log names the process, by
        its number outside of any container.
        """
        counted, lines = self._count(), self._log.read_lines()
        if counted is None and lines is None:
            return None
        named = re.compile(rf"Killed process {pid} ")
        more = counted is not None and counted > (self._before or 0)
        return more or any(named.search(line) for line in lines or ())

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _count(self) -> int | None:
        if self._counter is None:
            return None
        with suppress(OSError):
            found = re.search(r"(?m)^oom_kill (\d+)$", self._counter.read_text())
            return int(found[1]) if found else None
        return None


def _find_counter(membership: Path, groups: Path) -> Path | None:
    """The file with the number of kills: of control groups version 2, or of version 1's memory.

    In a container, the group's own folder may be mounted at the top.
    """
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:  # not Linux
        return None
    for _, controllers, path in lines:
        if controllers in ("", "memory"):
            top = groups / controllers
            name = "memory.oom_control" if controllers else "memory.events"
            for folder in (top / path.lstrip("/"), top):
                if (folder / name).exists():
                    return folder / name
    return None
