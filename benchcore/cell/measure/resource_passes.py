"""Measures memory, a profile and energy after the timed starts, in separate processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.measure import energy, gpu, host
from benchcore.cell.processes.process import ContenderProcess
from benchcore.protocol import ContenderOrder, DuelOrder

IDLE_S = 2.0
SETTLE_S = 1.0
WINDOW_S = 5.0
"""Some devices update their counter every 100 ms, which distorts windows shorter than 5 s."""
WINDOWS = 3
"""Their differences give the interval of a step's energy."""


@dataclass(frozen=True)
class _Part:
    """The results of a pass, under the start's own keys, and its failures."""

    found: dict[str, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    def joined(self, other: _Part) -> _Part:
        return _Part({**self.found, **other.found}, (*self.failures, *other.failures))


def _attempt(measure: Callable[[], dict[str, Any]]) -> _Part:
    try:
        return _Part(measure())
    except ContenderFailedError as failed:
        return _Part(failures=(f"{failed.stage}: {failed.reason}",))
    except gpu.CounterAbsentError as lost:
        return _Part(failures=(f"energy: {lost}",))


Launch = Callable[[ContenderOrder], tuple[ContenderProcess, dict[str, Any] | None]]
"""Starts a contender; see `Launcher.launch_for_pass`."""
Prove = Callable[[str, str, ContenderProcess], None]
"""Collects the evidence of a contender's process, by the contender's name and what was measured.
It is compared with the other side's."""


class ResourcePasses:
    """The passes of one duel, after its last start. `launch` starts a contender and runs one step.

    A pass that fails loses only its own columns: the contender's times stay valid.
    """

    def __init__(
        self, order: DuelOrder, launch: Launch, prove: Prove, *, powercap: Path = energy.POWERCAP
    ) -> None:
        self._order = order
        self._launch, self._prove = launch, prove
        self._powercap = powercap

    def run(self, contenders: Mapping[str, dict[str, Any]]) -> None:
        """Fill in memory, profile and energy at the last start of each contender still ok, and how
        long it compiles with filled caches."""
        orders = [c for c in self._order.contenders if contenders[c.name]["status"] == "ok"]
        if not orders:
            return
        inspected: list[_Part] = []
        with ThreadPoolExecutor(self._num_parallel()) as pool:
            for first in range(0, len(orders), self._num_parallel()):
                inspected += self._inspect(orders[first : first + self._num_parallel()], pool)
        read = energy.open_counter(self._order.device, self._powercap)
        for each, seen in zip(orders, inspected, strict=True):
            contender = contenders[each.name]
            metered = _attempt(lambda each=each: self._meter(each, read)) if read else _Part()
            contender["warm"] = seen.found.pop("warm", None)
            contender["starts"][-1].update(**seen.found, **metered.found)
            if not read:
                reason = energy.absence_reason(self._order.device, self._powercap)
                contender["effective"]["no_energy"] = reason
            if failures := [*seen.failures, *metered.failures]:
                contender["effective"]["failed_passes"] = failures

    def _inspect(self, orders: Sequence[ContenderOrder], pool: ThreadPoolExecutor) -> list[_Part]:
        """Launch one after another, as compilation is timed; then memory in parallel; then, in the
        same processes, one profile after another."""
        held: dict[str, ContenderProcess] = {}
        try:
            launched = [_attempt(lambda each=each: self._hold(each, held)) for each in orders]
            measured = list(
                pool.map(lambda each: self._measure_memory(each, held.get(each.name)), orders)
            )
            return [
                warm.joined(memory).joined(
                    _attempt(lambda each=each: self._profile(held[each.name]))
                    if memory.found
                    else _Part()
                )
                for each, warm, memory in zip(orders, launched, measured, strict=True)
            ]
        finally:
            list(pool.map(ContenderProcess.close, held.values()))

    def _hold(self, order: ContenderOrder, held: dict[str, ContenderProcess]) -> dict[str, Any]:
        held[order.name], warm = self._launch(order)
        held[order.name].freeze()
        return {"warm": warm}

    def _measure_memory(self, order: ContenderOrder, process: ContenderProcess | None) -> _Part:
        """The memory of a step; empty if the process did not launch."""
        return (
            _Part() if process is None else _attempt(lambda: self._request_memory(order, process))
        )

    def _request_memory(self, order: ContenderOrder, process: ContenderProcess) -> dict[str, Any]:
        process.thaw()
        measured = self._request(process, {"do": "memory"}, "memory")
        self._prove(order.name, "memory", process)
        process.freeze()
        of_metrics = {key: measured.pop(key) for key in ("measured",) if key in measured}
        return {"memory": measured, **of_metrics}

    def _num_parallel(self) -> int:
        """On a CPU memory is counted per process; on a GPU parallel processes would compete."""
        return host.usable_cpus() if self._order.device == "cpu" else 1

    def _profile(self, process: ContenderProcess) -> dict[str, Any]:
        process.thaw()
        return {"profile": self._request(process, {"do": "profile"}, "profile")}

    def _meter(self, order: ContenderOrder, read: energy.ReadMillijoules) -> dict[str, Any]:
        """Measure idle power with the contender frozen; then, after a second of steps, a window."""
        process, _ = self._launch(order)
        try:
            measured = self._measure_energy(process, read)
            self._prove(order.name, "energy", process)
            return {"energy": measured}
        finally:
            process.close()

    def _measure_energy(
        self, process: ContenderProcess, read: energy.ReadMillijoules
    ) -> dict[str, Any]:
        process.freeze()
        idle = energy.measure(read, lambda: time.sleep(IDLE_S))
        process.thaw()
        self._run_for(process, SETTLE_S)
        windows = [self._measure_window(process, read) for _ in range(WINDOWS)]
        totals = {key: sum(each[key] for each in windows) for key in windows[0]}
        return {**totals, "idle_mw": idle.power_mw, "windows": windows}

    def _measure_window(
        self, process: ContenderProcess, read: energy.ReadMillijoules
    ) -> dict[str, Any]:
        counted: list[int] = []
        spent = energy.measure(read, lambda: counted.append(self._run_for(process, WINDOW_S)))
        return {
            "gross_mj": spent.energy_mj,
            "window_ns": spent.window_ns,
            "steps": counted[0],
        }

    def _run_for(self, process: ContenderProcess, seconds: float) -> int:
        return self._request(process, {"do": "energy", "seconds": seconds}, "steps")

    def _request(self, process: ContenderProcess, message: dict[str, Any], wanted: str) -> Any:
        timeout_s = self._order.limits.block_timeout_s + WINDOW_S
        return process.request(message, wanted=wanted, timeout_s=timeout_s)
