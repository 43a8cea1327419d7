"""The table of metrics: what a step of a contender costs, where it is measured, how it is shown.
Only the ratio of the first, the time of a step, is judged and has a series over nights.

Ingest, frames, the page's and the commands' tables read it; `docs/add-a-metric.md` adds a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["ns", "s", "bytes", "mj", "per_s", "factor", "count"]
Aggregate = Literal["max", "mean", "median", "sum"]
_MEASURED = "measured."


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One quantity of a contender run; None or NaN where it was not measured, never 0."""

    key: str
    """Its column in the frames of contenders and starts, and its key in what commands print."""
    place: str
    """Its path in a start of the result document; empty = computed from other metrics."""
    unit: Unit
    """Decides how it is formatted (`dashboards.formatting.format_metric`)."""
    over_starts: Aggregate | None = None
    """How the starts' values become the contender's; None = a frame computes it from samples."""
    better: Literal["lower", "higher"] = "lower"
    heading: str
    on_page: bool = False
    """Whether it is a column of the page's table of costs."""

    @property
    def title(self) -> str:
        """Its heading where nothing else says which direction is better; usually that is down."""
        return self.heading + (" (more is better)" if self.better == "higher" else "")

    @property
    def measured_key(self) -> str | None:
        """Its key in `measured`, for metrics without a column of their own."""
        return self.place.removeprefix(_MEASURED) if self.place.startswith(_MEASURED) else None


# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric(key="median_step_ns", place="blocks", unit="ns", over_starts="median",
           heading="Step, queued"),
    Metric(key="items_per_s", place="", unit="per_s", better="higher",
           heading="Items per second, queued"),
    Metric(key="latency_p50_ns", place="latency_ns", unit="ns",
           heading="Latency, median", on_page=True),
    Metric(key="latency_p95_ns", place="latency_ns", unit="ns",
           heading="Latency, p95", on_page=True),
    Metric(key="latency_p99_ns", place="latency_ns", unit="ns", heading="Latency, p99"),
    Metric(key="latency_mean_ns", place="latency_ns", unit="ns", heading="Latency, mean"),
    Metric(key="latency_sd_ns", place="latency_ns", unit="ns",
           heading="Latency, sd"),
    Metric(key="latency_min_ns", place="latency_ns", unit="ns", heading="Latency, min"),
    Metric(key="latency_max_ns", place="latency_ns", unit="ns", heading="Latency, max"),
    Metric(key="host_boundness", place="", unit="factor",
           heading="Against queue", on_page=True),
    Metric(key="planned_bytes", place="memory.planned_bytes", unit="bytes", over_starts="max",
           heading="Memory planned", on_page=True),
    Metric(key="allocator_peak_bytes", place="memory.allocator_peak_bytes", unit="bytes",
           over_starts="max", heading="Allocator peak", on_page=True),
    Metric(key="process_peak_bytes", place="memory.process_peak_bytes", unit="bytes",
           over_starts="max", heading="Process peak", on_page=True),
    Metric(key="process_baseline_bytes", place="memory.process_baseline_bytes", unit="bytes",
           over_starts="max", heading="Of it before work", on_page=True),
    Metric(key="gross_mj", place="energy", unit="mj", heading="Energy per step", on_page=True),
    Metric(key="gross_low_mj", place="energy", unit="mj", heading="Energy, low"),
    Metric(key="gross_high_mj", place="energy", unit="mj", heading="Energy, high"),
    Metric(key="net_mj", place="energy", unit="mj", heading="Net of idle", on_page=True),
    Metric(key="cold_compile_s", place="stages", unit="s",
           heading="Compilation, caches empty"),
    Metric(key="warm_compile_s", place="stages", unit="s", heading="Compilation, caches filled"),
)
# fmt: on

OF_SAMPLES = tuple(each.key for each in METRICS if each.place in ("latency_ns", "energy"))
"""Computed from the samples of all starts of a contender."""
IN_COLUMNS = tuple(each.key for each in METRICS if each.place.startswith("memory."))
"""Stored as columns of `start_run`."""
IN_MEASURED = tuple(each for each in METRICS if each.measured_key is not None)
"""Stored by key in the column `start_run.measured`."""
ON_PAGE = tuple(each for each in METRICS if each.on_page)
"""The columns of the page's table of costs."""


def over_starts() -> dict[str, Aggregate]:
    """By key, how the values of a contender's starts are aggregated."""
    return {each.key: each.over_starts for each in METRICS if each.over_starts is not None}
