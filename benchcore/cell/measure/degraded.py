"""Decides which blocks are degraded: those whose telemetry shows too much disturbance."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MAX_STEAL_SHARE = 0.05
"""Share of CPU time that the hypervisor gave to other guests."""
MAX_FOREIGN_CPU_SHARE = 0.15
"""Share of the CPUs in use. One busy process next to two of our threads takes a third of two CPUs;
the error of 10 ms ticks is up to a tenth in a block of 100 ms."""
MAX_CLOCK_DRIFT = 0.05
"""Deviation of the SM clock from the median of its start.

A CPU's frequency is recorded but degrades no block. Virtual machines don't report it. Elsewhere it
is the frequency of the last tick, read after the block, when cores have begun to idle, so a rule
would depend on how fast we read. It also depends on the work: wide vector instructions lower it
for the side that uses them. Interference shows as CPU time of other processes.
"""

# NVML's bits. Idle (0x1), clocks that users set (0x2, 0x100) and the power cap (0x4) are no
# disturbance: a large product always reaches the cap, on both sides. A cap that slows one block
# more than others shows as a change of the clock.
THROTTLE_REASONS = {
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


def find_degraded(blocks: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Map round -> why its block is degraded, for one contender's blocks in one start.

    The load average is not used: over a minute it includes our own threads and other blocks.
    """
    clocks = [block["telemetry"]["sm_clock_mhz"] for block in blocks]
    known = [clock for clock in clocks if clock is not None]
    median_mhz = statistics.median(known) if known else None
    reasons = {block["round"]: _why(block["telemetry"], median_mhz) for block in blocks}
    return {number: reason for number, reason in reasons.items() if reason}


_SHORTEST_NS = 100_000_000
_OF_CPU = ("steal_share", "foreign_cpu_share")
_OF_GPU = ("sm_clock_mhz", "throttle_reasons", "foreign_processes")


def list_unwatched(blocks: Sequence[Mapping[str, Any]], *, on_gpu: bool) -> dict[str, str]:
    """Map each counter that some block lacks to the reason: a disturbance that it alone would show
    went unseen. A short block has no shares of CPU time, as they are counted in ticks."""
    found: dict[str, str] = {}
    for block in blocks:
        telemetry = block["telemetry"]
        reasons = telemetry.get("missing") or {}
        of_cpu = _OF_CPU if block["elapsed_ns"] >= _SHORTEST_NS else ()
        for name in (*of_cpu, *(_OF_GPU if on_gpu else ())):
            if telemetry.get(name) is None:
                found.setdefault(name, reasons.get(name, "not counted"))
    return found


def leave_out_degraded(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The blocks of a start that are not degraded."""
    degraded = find_degraded(blocks)
    return [block for block in blocks if block["round"] not in degraded]


def _why(telemetry: Mapping[str, Any], median_mhz: float | None) -> str:
    found = []
    for key, most, text in (
        ("steal_share", MAX_STEAL_SHARE, "CPU time was stolen"),
        ("foreign_cpu_share", MAX_FOREIGN_CPU_SHARE, "of the CPUs used by other processes"),
    ):
        share = telemetry.get(key)
        if share is not None and share > most:
            found.append(f"{100 * share:.0f} % {text} (at most {100 * most:.0f} %)")
    if telemetry["foreign_processes"]:
        found.append(f"{telemetry['foreign_processes']} foreign processes on the GPU")
    if telemetry.get("thawed_contenders"):
        found.append(f"{telemetry['thawed_contenders']} waiting contenders were not frozen")
    bits = int(telemetry["throttle_reasons"] or 0)  # a JSON schema accepts 1.0 as an integer
    found += [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    clock = telemetry["sm_clock_mhz"]
    if clock is not None and median_mhz and abs(clock / median_mhz - 1) > MAX_CLOCK_DRIFT:
        found.append(f"SM clock {clock:g} MHz against {median_mhz:g} MHz in the start's median")
    return ", ".join(found)
