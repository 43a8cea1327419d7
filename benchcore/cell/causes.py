"""What a failure was, in one word: told by whoever saw it, or read from the framework's own words,
and the GPU's faults that the kernel logged meanwhile."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, TypedDict

Cause = Literal[
    "illegal_address",
    "cuda_error",
    "autotuning",
    "out_of_memory",
    "hardware",
    "killed",
    "signal",
    "timeout",
    "garbage",
    "no_result",
    "not_finite",
    "precision",
    "import",
    "environment",
    "unsupported",
    "exception",
]

_WORDS: tuple[tuple[Cause, str], ...] = (
    # Memory first: an allocation that fails while autotuning is no autotuner's bug.
    ("out_of_memory", r"RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|MemoryError|OutOfMemory"),
    ("illegal_address", r"CUDA_ERROR_ILLEGAL_ADDRESS|illegal memory access|MISALIGNED_ADDRESS"),
    ("autotuning", r"[Aa]utotuning failed|gemm_fusion_autotuner|redzone"),
    ("cuda_error", r"CUDA_ERROR_[A-Z]|CUDA error: |(CUDNN|CUBLAS)_STATUS_(?!SUCCESS)[A-Z]"),
)
_FRAMEWORKS_OWN = frozenset({"crash", "oom"})
"""Statuses that say less than the framework's words; all others say what happened themselves."""

KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)[,:]? *(.*)")
_BROKEN_BOARD = frozenset({48, 79, 94, 95})
"""Xids of NVIDIA's catalogue that are the board's own: uncorrectable errors of its memory (48; 94
and 95, contained or not), and a board that fell off its bus (79). No flag cures these."""


class Xid(TypedDict):
    """One fault that NVIDIA's driver told the kernel of."""

    number: int
    pci: str
    message: str


def find_cause(status: str, text: str, told: Cause, xids: list[Xid] | None = None) -> Cause:
    """The cause of a failure whose reason and log are `text`; `told` is what whoever saw it knew.

    A process that a CUDA error poisoned may end by any signal: the framework's words go before it.
    """
    if status not in _FRAMEWORKS_OWN:
        return told
    if any(xid["number"] in _BROKEN_BOARD for xid in xids or ()):
        return "hardware"
    for cause, words in _WORDS:
        if re.search(words, text):
            return cause
    return told


class KernelLog:
    """What NVIDIA's driver tells the kernel of one GPU, from now on. Not run on a GPU.

    `pci` is the GPU's address as NVML writes it; None = of every GPU of the machine.
    """

    def __init__(self, pci: str | None, log: Path = KERNEL_LOG) -> None:
        self._pci = None if pci is None else _short_pci(pci)
        try:
            self._file = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:  # not Linux, a container without it, or not for us to read
            self._file = -1

    def read_xids(self) -> list[Xid] | None:
        """Those since the last call; None = the log can't be read, so that none is known of."""
        if self._file < 0:
            return None
        found = (_XID.search(line) for line in self._read_lines())
        return [
            Xid(number=int(each[2]), pci=each[1].lower(), message=each[0])
            for each in found
            if each and self._pci in (None, _short_pci(each[1]))
        ]

    def _read_lines(self) -> list[str]:
        parts: list[bytes] = []
        while True:
            try:
                part = os.read(self._file, 65536)  # of the kernel's own file: one record
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before we came; go on with the rest
                continue
            if not part:
                break
            parts.append(part)
        return b"".join(parts).decode(errors="replace").splitlines()

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _short_pci(address: str) -> str:
    """`0000:3b:00` of `00000000:3B:00.0`: NVML and the driver's log write it differently."""
    domain, bus, device = address.lower().partition(".")[0].split(":")[-3:]
    return f"{domain[-4:]}:{bus}:{device}"
