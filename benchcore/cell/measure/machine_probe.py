"""Measures the machine itself, without a framework: a matrix product and a copy after each round.

No framework can cause a change of these times. In a GPU's duel they measure the host, not the GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.processes.channel import Channel, ChannelClosedError
from benchcore.cell.processes.launch import INHERITED
from benchcore.cell.processes.process import ContenderProcess, start_contender
from benchcore.protocol import DuelOrder

_SIDE = 512
_COPIED_BYTES = 64 << 20
"""Larger than most caches; it is read once and written once."""
_UNMEASURED_S = 0.02
_MEASURED_S = 0.03
_SEED = 20261001


class MachineProbe:
    """Measures after rounds, in duels whose order requests it; `rows` has the times."""

    def __init__(self, order: DuelOrder, scratch: Path) -> None:
        self._order = order
        self._log = scratch / "probe.log"
        self._process: ContenderProcess | None = None
        self.rows: list[dict[str, Any]] = []
        self.failure: str | None = None

    def measure(self, start: int, number: int, is_quiet: Callable[[], bool]) -> None:
        """Measure after a round, while all contenders are frozen; the row is dropped if `is_quiet`
        then shows that they were not. If the probe fails, the document records its failure, and the
        duel continues without it."""
        if not self._order.limits.probe or self.failure is not None:
            return
        try:
            seen = self._run_once()
        except (ContenderFailedError, OSError) as error:
            self.failure = str(error)
            self.close()
            return
        if is_quiet():
            self.rows.append({"start": start, "round": number, **seen})

    def _run_once(self) -> Mapping[str, Any]:
        if self._process is None:
            environ = {key: os.environ[key] for key in INHERITED if key in os.environ}
            environ["PYTHONPATH"] = os.environ["PYTHONPATH"]
            self._process = start_contender(sys.executable, environ, self._log, role="probe")
        process = self._process
        process.thaw()
        limit_s = self._order.limits.block_timeout_s
        seen = process.request({"do": "probe"}, wanted="probed", timeout_s=limit_s)
        process.freeze()
        return seen

    def close(self) -> None:
        """End its process, if it runs."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def describe(self) -> dict[str, Any] | None:
        """The document's part; None if the order doesn't request it."""
        return {"rows": self.rows, "failure": self.failure} if self._order.limits.probe else None


def serve_probe(channel: Channel) -> None:
    """Answer each message with the nanoseconds of one product and one copy, until the conductor
    closes the pipe. Without numpy there is no product."""
    multiply, copy = _make_product(), _make_copy()
    try:
        while True:
            channel.receive()
            gemm_ns = None if multiply is None else _time(multiply)
            channel.send({"probed": {"gemm_ns": gemm_ns, "copy_ns": _time(copy)}})
    except ChannelClosedError:
        return


def _make_product() -> Callable[[], object] | None:
    """A product by numpy's BLAS with all of its threads."""
    try:
        import numpy as np
    except ImportError:
        return None
    rng = np.random.Generator(np.random.PCG64(_SEED))
    left, right = (rng.standard_normal((_SIDE, _SIDE), dtype=np.float32) for _ in range(2))
    product = np.empty_like(left)
    return lambda: np.matmul(left, right, out=product)


def _make_copy() -> Callable[[], object]:
    """A copy by the C library in one thread."""
    source, target = (memoryview(bytearray(os.urandom(1) * _COPIED_BYTES)) for _ in range(2))

    def copy() -> None:
        target[:] = source

    return copy


def _time(step: Callable[[], object]) -> int:
    """Nanoseconds of a step, timed in a window after untimed steps."""
    _repeat(step, _UNMEASURED_S)
    return max(1, _repeat(step, _MEASURED_S))


def _repeat(step: Callable[[], object], seconds: float) -> int:
    began = now = time.perf_counter_ns()
    count = 0
    while now - began < seconds * 1e9:
        step()
        count += 1
        now = time.perf_counter_ns()
    return round((now - began) / count)
