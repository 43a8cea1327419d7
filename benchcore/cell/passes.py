"""What is measured apart from time, each contender in a process of its own: memory, and energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchcore.cell import energy, host
from benchcore.cell.process import ContenderFailedError, ContenderProcess
from benchcore.protocol import ContenderOrder, DuelOrder

IDLE_S = 2.0
SETTLE_S = 1.0
WINDOW_S = 5.0
"""Counters step every 100 ms on some devices, and a window shorter than 5 s shows it."""

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
        """Fill in memory and energy at the last start of every contender that is still ok."""
        orders = [c for c in self._order.contenders if contenders[c.name]["status"] == "ok"]
        if not orders:
            return
        with ThreadPoolExecutor(self._lanes()) as lanes:
            weighed = list(lanes.map(lambda each: self._attempt(each, self._weigh), orders))
        read = energy.open_counter(self._order.device, self._powercap)
        for each, memory in zip(orders, weighed, strict=True):
            contender = contenders[each.name]
            metered = (
                self._attempt(each, lambda process: self._meter(process, read)) if read else {}
            )
            contender["starts"][-1].update(memory.get("found", {}), **metered.get("found", {}))
            failures = [part["failed"] for part in (memory, metered) if "failed" in part]
            if failures:
                contender["effective"]["failed_passes"] = failures

    def _lanes(self) -> int:
        """Memory on a CPU is each process's own; on a GPU they would crowd each other out."""
        return host.usable_cpus() if self._order.device == "cpu" else 1

    def _attempt(
        self, order: ContenderOrder, measure: Callable[[ContenderProcess], dict[str, Any]]
    ) -> dict[str, Any]:
        try:
            process = self._launch(order)
        except ContenderFailedError as failed:
            return {"failed": f"{failed.stage}: {failed.reason}"}
        try:
            return {"found": measure(process)}
        except ContenderFailedError as failed:
            return {"failed": f"{failed.stage}: {failed.reason}"}
        finally:
            process.close()

    def _weigh(self, process: ContenderProcess) -> dict[str, Any]:
        return {"memory": self._ask(process, {"do": "weigh"}, "memory")}

    def _meter(self, process: ContenderProcess, read: energy.ReadMillijoules) -> dict[str, Any]:
        """Idle power with the contender there but frozen; then a window of steps after a second."""
        process.freeze()
        idle = energy.measure(read, lambda: time.sleep(IDLE_S))
        process.thaw()
        self._drive(process, SETTLE_S)
        counted: list[int] = []
        spent = energy.measure(read, lambda: counted.append(self._drive(process, WINDOW_S)))
        return {
            "energy": {
                "gross_mj": spent.energy_mj,
                "idle_mw": idle.power_mw,
                "window_ns": spent.window_ns,
                "steps": counted[0],
            }
        }

    def _drive(self, process: ContenderProcess, seconds: float) -> int:
        return self._ask(process, {"do": "drive", "seconds": seconds}, "steps")

    def _ask(self, process: ContenderProcess, message: dict[str, Any], wanted: str) -> Any:
        timeout_s = self._order.block_timeout_s + WINDOW_S
        return process.ask(message, wanted=wanted, timeout_s=timeout_s)
