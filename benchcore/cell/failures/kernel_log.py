"""Reads the kernel's log; NVIDIA's driver writes GPU faults to it. Not run on a GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypedDict

KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)[,:]? *(.*)")


class Xid(TypedDict):
    """One fault in the kernel's log."""

    number: int
    pci: str
    message: str


class KernelLog:
    """The faults of one GPU from now on.

    `pci` is the GPU's address in NVML's notation; None = every GPU of the machine.
    """

    def __init__(self, pci: str | None, log: Path = KERNEL_LOG) -> None:
        self._pci = None if pci is None else _short_pci(pci)
        try:
            self._file = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:  # not Linux, a container without it, or no permission
            self._file = -1

    def read_xids(self) -> list[Xid] | None:
        """The faults since the last call; None = the log can't be read, so none is known."""
        lines = self.read_lines()
        if lines is None:
            return None
        found = (_XID.search(line) for line in lines)
        return [
            Xid(number=int(each[2]), pci=each[1].lower(), message=each[0])
            for each in found
            if each and self._pci in (None, _short_pci(each[1]))
        ]

    def read_lines(self) -> list[str] | None:
        """All lines since the last call; None = the log can't be read."""
        if self._file < 0:
            return None
        parts: list[bytes] = []
        while True:
            try:
                part = os.read(self._file, 65536)  # one record per read
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before we read them; continue
                continue
            if not part:
                break
            parts.append(part)
        return b"".join(parts).decode(errors="replace").splitlines()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _short_pci(address: str) -> str:
    """`0000:3b:00` from `00000000:3B:00.0`: NVML and the driver's log use different notations."""
    domain, bus, device = address.lower().partition(".")[0].split(":")[-3:]
    return f"{domain[-4:]}:{bus}:{device}"
