"""Probes of metrics that have no field of their own in a result document.

`docs/add-a-metric.md` adds one. They run in the contender's process, after its clock has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

PROBES: Mapping[str, Callable[[], float | None]] = {}
"""By key in the start's `measured`; None where this machine has no such counter."""


def probe_metrics() -> dict[str, float | None]:
    """What every probe reads now."""
    return {key: probe() for key, probe in PROBES.items()}
