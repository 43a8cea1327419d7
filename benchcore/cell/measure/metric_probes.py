"""Probes of metrics that have no field of their own in a result document.

`docs/add-a-metric.md` adds one. They run in the contender's process, after its clock has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

PROBES: Mapping[str, Callable[[], float | None]] = {}
"""By the metric's key in the start's `measured`; a probe returns None without its counter."""


def probe_metrics() -> dict[str, float | None]:
    """The current value of every probe."""
    return {key: probe() for key, probe in PROBES.items()}
