"""What a step cost in energy: all that the device drew, and what was beyond its idling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """Millijoules of one step. `net_mj` leaves out what the device would have drawn idle."""

    gross_mj: float
    net_mj: float


def step_energy(measured: Mapping[str, float] | None) -> StepEnergy | None:
    """From a start's `energy` (a counter's difference, and idle power of the same allocation)."""
    if measured is None or measured["steps"] == 0:
        return None
    idle_mj = measured["idle_mw"] * measured["window_ns"] / 1e9
    gross_mj = measured["gross_mj"]
    return StepEnergy(
        gross_mj=gross_mj / measured["steps"], net_mj=(gross_mj - idle_mj) / measured["steps"]
    )
