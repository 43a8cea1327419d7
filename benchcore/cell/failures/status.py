"""The status of a contender that failed, and its cause in one word.

| status | decided by |
|---|---|
| crash, oom, unsupported, environment, numerics (canary) | `exceptions`, `classify_exit` |
| killed | `classify_exit`: SIGKILL, and the kernel did not report that memory ran out |
| timeout, crash (garbage on the pipe) | `process.ContenderProcess.request` |
| timeout (of all contenders) | `Conductor.describe_ended`: the duel hung, twice |
| unsupported, environment (before any process) | `start.StartRunner` |
| numerics (NaN or infinity) | `start.StartRunner`, in what `proof.agreement` finds |
| workaround | `failures.ladder`: a crash that a workaround avoided |
| invalid_physics | `verdict.duel.physics`, after the campaign's ceilings are measured |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from signal import SIGKILL, Signals
from typing import Literal

from benchcore.cell.failures.kernel_log import Xid

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
    "unproven_step",
    "precision",
    "import",
    "environment",
    "unsupported",
    "exception",
]
INFRASTRUCTURE = "infrastructure"
"""Status of a failure that no contender caused: it ends the duel and is not in a result."""

_PATTERNS: tuple[tuple[Cause, str], ...] = (
    # Memory first: an allocation that fails during autotuning is not the autotuner's bug.
    ("out_of_memory", r"RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|MemoryError|OutOfMemory"),
    ("illegal_address", r"CUDA_ERROR_ILLEGAL_ADDRESS|illegal memory access|MISALIGNED_ADDRESS"),
    ("autotuning", r"[Aa]utotuning failed|gemm_fusion_autotuner|redzone"),
    ("cuda_error", r"CUDA_ERROR_[A-Z]|CUDA error: |(CUDNN|CUBLAS)_STATUS_(?!SUCCESS)[A-Z]"),
)
_READ_FROM_LOG = frozenset({"crash", "oom"})
"""Statuses for which the framework's own message is clearer than ours."""
_BROKEN_BOARD = frozenset({48, 79, 94, 95})
"""Xids in NVIDIA's catalogue that mean a broken board: uncorrectable errors of its memory (48; 94
and 95, contained or not), and a board that fell off its bus (79). No flag avoids these."""


class ContenderFailedError(Exception):
    """This contender can't continue, but the duel can. Carries the fields of its result."""

    def __init__(
        self,
        status: str,
        stage: str,
        reason: str,
        traceback: str | None = None,
        cause: Cause = "exception",
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.stage = stage
        self.reason = _make_storable(reason)
        self.traceback = None if traceback is None else _make_storable(traceback)
        self.cause: Cause = cause


def _make_storable(text: str) -> str:
    """The text without NUL and lone surrogates, which logs and names of files may hold and no
    database stores."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


@dataclass(frozen=True)
class Ending:
    """How a failure is classified."""

    status: str
    cause: Cause
    reason: str


def classify_exit(code: int, ran_out: bool | None) -> Ending:
    """Classify the exit code of a process without a result; negative = killed by a signal.

    `ran_out` = whether the kernel killed it as memory ran out; None = unknown.
    """
    if code >= 0:
        return Ending("crash", "no_result", f"ended with exit code {code} without a result")
    reason = f"killed by {Signals(-code).name}"
    if code == -SIGKILL and ran_out:
        return Ending("oom", "out_of_memory", f"{reason} by the kernel, as memory ran out")
    if code == -SIGKILL:
        why = "whether memory ran out is unknown" if ran_out is None else "not by the kernel"
        return Ending("killed", "killed", f"{reason}, {why}")
    return Ending("crash", "signal", reason)


def find_cause(status: str, text: str, reported: Cause, xids: list[Xid] | None = None) -> Cause:
    """The cause of a failure with `text` (its reason and log) that was reported as `reported`.

    After a CUDA error a process may end by any signal, so the framework's message decides.
    """
    if status not in _READ_FROM_LOG:
        return reported
    if any(xid["number"] in _BROKEN_BOARD for xid in xids or ()):
        return "hardware"
    for cause, pattern in _PATTERNS:
        if re.search(pattern, text):
            return cause
    return reported
