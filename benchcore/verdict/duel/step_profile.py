"""Where the time of a step goes, from a profile of some steps."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.names import format_percent
from benchcore.verdict.samples import t_quantile

_SCALAR_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """One step. `kernel_ns` and `dispatch_ns` add up to a step without a profiler.

    `dispatch_ns` is the time without a kernel: Python, dispatch, launch gaps, waiting. `host_syncs`
    are waits for a value, `host_copies` arrays taken from the host; `python_calls` are the Python
    calls of the host, `module_calls` those into a module system. None = not in the profile.
    """

    kernel_ns: float | None
    dispatch_ns: float | None
    num_kernels: float | None
    host_syncs: float | None
    host_copies: float | None
    copied_bytes: float | None
    python_calls: float | None
    module_calls: float | None


def profile_step(profile: Mapping[str, Any] | None, *, on_gpu: bool) -> StepProfile | None:
    """From a start's `profile`.

    The device times a GPU's kernels. On a CPU the profiler slows operators and the gaps between
    them, so their shares are used. Scalars passed from the host are not copies.
    """
    if profile is None:
        return None
    steps = profile["steps"]
    plain_ns = profile["plain_ns"] / steps
    seen_ns = profile["kernel_ns"]
    kernel_ns = None
    if seen_ns is not None:
        scaled = seen_ns / steps if on_gpu else plain_ns * seen_ns / profile["wall_ns"]
        kernel_ns = min(plain_ns, scaled)
    copies, copied_bytes = profile["host_copies"], profile["copied_bytes"]
    if copies and copied_bytes is not None and copied_bytes <= _SCALAR_BYTES * copies:
        copies = 0
    return StepProfile(
        kernel_ns=kernel_ns,
        dispatch_ns=None if kernel_ns is None else plain_ns - kernel_ns,
        num_kernels=_each(profile["num_kernels"], steps),
        host_syncs=_each(profile["host_syncs"], steps),
        host_copies=_each(copies, steps),
        copied_bytes=_each(copied_bytes, steps),
        python_calls=profile.get("python_calls"),
        module_calls=profile.get("module_calls"),
    )


def list_kernels(profile: Mapping[str, Any], most: int) -> list[str]:
    """The longest kernels with their share of all kernel time: `dot.1 41 %`."""
    total = profile["kernel_ns"]
    return [
        f"{each['name']} {format_percent(each['ns'] / total)}"
        for each in profile["kernels"][:most]
        if total
    ]


def _each(total: int | None, steps: int) -> float | None:
    return None if total is None else total / steps


GRAPHS = "the profile shows CUDA graphs that the manifest lacks, or none that PyTorch claims"


def judge_graphs(profile: Mapping[str, Any], framework: str, claimed: str | None) -> str:
    """Why the CUDA graphs of a profile are not those that a side's manifest claims (`on`, `off`,
    None = not read); "" = they are. XLA makes none of a short program, also where it may."""
    launches = profile.get("graph_launches")
    if launches and claimed == "off":
        return f"its steps launched {launches} CUDA graphs, and it reports none"
    if launches == 0 and claimed == "on" and framework == "torch":
        return "its steps launched no CUDA graph, and it reports that they do"
    return ""


_FROM_HOST = re.compile(r"memcpy.*(HtoD|H2D)", re.IGNORECASE)


def time_inputs(profile: Mapping[str, Any] | None) -> float | None:
    """Nanoseconds per step of a GPU's transfers from the host, by CUPTI's names; None if there were
    none, or none is among the longest kernels. Not run on a GPU."""
    kernels = [] if profile is None else profile["kernels"]
    found = [each["ns"] for each in kernels if _FROM_HOST.search(each["name"])]
    return sum(found) / profile["steps"] if profile and found else None


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """Millijoules of one step. `net_mj` subtracts the device's idle energy; `gross_low_mj` and
    `gross_high_mj` are the 95 % interval over windows, None with a single one."""

    gross_mj: float
    net_mj: float
    gross_low_mj: float | None = None
    gross_high_mj: float | None = None


def step_energy(measured: Mapping[str, Any] | None) -> StepEnergy | None:
    """From a start's `energy` (a counter's difference, and idle power of the same allocation)."""
    if measured is None or measured["steps"] == 0:
        return None
    idle_mj = measured["idle_mw"] * measured["window_ns"] / 1e9
    gross_mj = measured["gross_mj"] / measured["steps"]
    windows = [each["gross_mj"] / each["steps"] for each in _list_windows(measured)]
    half = _half_width(windows) if len(windows) > 1 else None
    return StepEnergy(
        gross_mj=gross_mj,
        net_mj=gross_mj - idle_mj / measured["steps"],
        gross_low_mj=None if half is None else gross_mj - half,
        gross_high_mj=None if half is None else gross_mj + half,
    )


def _list_windows(measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in measured.get("windows") or () if each["steps"]]


def _half_width(values: list[float]) -> float:
    """Half the 95 % interval of the mean, by Student's t."""
    deviation = statistics.stdev(values) / math.sqrt(len(values))
    return t_quantile(0.975, len(values) - 1) * deviation
