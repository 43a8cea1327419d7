"""What is measured apart from time, in processes of its own: memory, where time goes, energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchcore.cell import energy, host
from benchcore.cell.process import ContenderFailedError, ContenderProcess
from benchcore.protocol import ContenderOrder, DuelOrder

IDLE_S = 2.0
SETTLE_S = 1.0
WINDOW_S = 5.0
"""Counters step every 100 ms on some devices, and a window shorter than 5 s shows it."""


@dataclass(frozen=True)
class _Part:
    """What a pass found, under the start's own keys, and why it did not."""

    found: dict[str, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    def joined(self, other: _Part) -> _Part:
        return _Part({**self.found, **other.found}, (*self.failures, *other.failures))


def _attempt(measure: Callable[[], dict[str, Any]]) -> _Part:
    try:
        return _Part(measure())
    except ContenderFailedError as failed:
        return _Part(failures=(f"{failed.stage}: {failed.reason}",))


Launch = Callable[[ContenderOrder], ContenderProcess]


class ResourcePasses:
    """The passes of one duel, after its last start. `launch` gives a contender that has run once.

    A pass that fails costs its own columns only: the contender's times stand.
    """

    def __init__(
        self, order: DuelOrder, launch: Launch, *, powercap: Path = energy.POWERCAP
    ) -> None:
        self._order = order
        self._launch = launch
        self._powercap = powercap

    def run(self, contenders: Mapping[str, dict[str, Any]]) -> None:
        """Fill in memory, profile and energy at the last start of each contender still ok."""
        orders = [c for c in self._order.contenders if contenders[c.name]["status"] == "ok"]
        if not orders:
            return
        looked_into: list[_Part] = []
        with ThreadPoolExecutor(self._lanes()) as lanes:
            for first in range(0, len(orders), self._lanes()):
                looked_into += self._look_into(orders[first : first + self._lanes()], lanes)
        read = energy.open_counter(self._order.device, self._powercap)
        for each, seen in zip(orders, looked_into, strict=True):
            contender = contenders[each.name]
            metered = _attempt(lambda each=each: self._meter(each, read)) if read else _Part()
            contender["starts"][-1].update(**seen.found, **metered.found)
            if failures := [*seen.failures, *metered.failures]:
                contender["effective"]["failed_passes"] = failures

    def _look_into(
        self, orders: Sequence[ContenderOrder], lanes: ThreadPoolExecutor
    ) -> list[_Part]:
        """Memory side by side; then, in the same processes, one profile after the other."""
        held: dict[str, ContenderProcess] = {}

        def weigh(order: ContenderOrder) -> dict[str, Any]:
            process = held[order.name] = self._launch(order)
            weighed = self._ask(process, {"do": "weigh"}, "memory")
            process.freeze()
            return {"memory": weighed}

        try:
            parts = list(lanes.map(lambda each: _attempt(lambda: weigh(each)), orders))
            return [
                part.joined(_attempt(lambda each=each: self._profile(held[each.name])))
                if part.found
                else part
                for each, part in zip(orders, parts, strict=True)
            ]
        finally:
            list(lanes.map(ContenderProcess.close, held.values()))

    def _lanes(self) -> int:
        """Memory on a CPU is each process's own; on a GPU they would crowd each other out."""
        return host.usable_cpus() if self._order.device == "cpu" else 1

    def _profile(self, process: ContenderProcess) -> dict[str, Any]:
        process.thaw()
        return {"profile": self._ask(process, {"do": "profile"}, "profile")}

    def _meter(self, order: ContenderOrder, read: energy.ReadMillijoules) -> dict[str, Any]:
        """Idle power with the contender there but frozen; then a window of steps after a second."""
        process = self._launch(order)
        try:
            return {"energy": self._measure_energy(process, read)}
        finally:
            process.close()

    def _measure_energy(
        self, process: ContenderProcess, read: energy.ReadMillijoules
    ) -> dict[str, Any]:
        process.freeze()
        idle = energy.measure(read, lambda: time.sleep(IDLE_S))
        process.thaw()
        self._drive(process, SETTLE_S)
        counted: list[int] = []
        spent = energy.measure(read, lambda: counted.append(self._drive(process, WINDOW_S)))
        return {
            "gross_mj": spent.energy_mj,
            "idle_mw": idle.power_mw,
            "window_ns": spent.window_ns,
            "steps": counted[0],
        }

    def _drive(self, process: ContenderProcess, seconds: float) -> int:
        return self._ask(process, {"do": "drive", "seconds": seconds}, "steps")

    def _ask(self, process: ContenderProcess, message: dict[str, Any], wanted: str) -> Any:
        timeout_s = self._order.block_timeout_s + WINDOW_S
        return process.ask(message, wanted=wanted, timeout_s=timeout_s)
