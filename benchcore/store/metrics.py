"""The table of metrics: what a step of a contender costs, where it is measured, how it is shown.
Those with a `scale` are tracked: their ratios are series over nights, in which shifts are detected.
Every duel judges only the first, the time of a step.

Ingest, frames, the page's and the commands' tables read it; `docs/add-a-metric.md` adds a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from benchcore.errors import UserError
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.history.thresholds import STEP_SCALE, SeriesScale
from benchcore.verdict.samples import swap_sides

Unit = Literal["ns", "s", "bytes", "mj", "per_s", "factor", "count"]
Aggregate = Literal["max", "mean", "median", "sum"]
_MEASURED = "measured."


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One quantity of a contender run; None or NaN where it was not measured, never 0."""

    key: str
    """Its column in the frames of contenders and starts, and its key in what commands print."""
    path: str
    """Its path in a start of the result document; empty = computed from other metrics."""
    unit: Unit
    """Decides how it is formatted (`dashboards.formatting.format_metric`)."""
    over_starts: Aggregate | None = None
    """How the starts' values become the contender's; None = a frame computes it from samples."""
    better: Literal["lower", "higher"] = "lower"
    heading: str
    on_page: bool = False
    """Whether it is a column of the page's table of costs."""
    noun: str = ""
    """Its name within a sentence; only tracked metrics have one."""
    scale: SeriesScale | None = None
    """What matters in its series, and the least noise; None = it is not tracked."""

    @property
    def tracked_scale(self) -> SeriesScale:
        """The scale of a metric that is tracked."""
        assert self.scale is not None, f"{self.key} is not tracked"
        return self.scale

    def log_ratio(self, a: float, b: float) -> float:
        """The log ratio of two positive amounts; above 0 = a is better."""
        log_ratio = math.log(b / a)
        return log_ratio if self.better == "lower" else -log_ratio

    def factors(self, logs: tuple[float | None, ...]) -> dict[str, float | None]:
        """A newer amount over the older one as `ratio`, and its interval `low` to `high`. `logs`
        are the logs of the same three, above 0 = the newer one is better."""
        log_ratio, low, high = logs
        ends = swap_sides(log_ratio, low, high) if self.better == "lower" else logs
        named = zip(("ratio", "low", "high"), ends, strict=True)
        return {name: None if log is None else math.exp(log) for name, log in named}

    @property
    def title(self) -> str:
        """Its heading where nothing else shows which direction is better; usually that is down."""
        return self.heading + (" (more is better)" if self.better == "higher" else "")

    @property
    def of_pass(self) -> bool:
        """Whether a process of its own measures it, after the starts."""
        return self.path.partition(".")[0] in ("memory", "energy", "profile", "warm", "measured")

    @property
    def measured_key(self) -> str | None:
        """Its key in `measured`, for metrics without a column of their own."""
        return self.path.removeprefix(_MEASURED) if self.path.startswith(_MEASURED) else None


# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric(key=STEP_TIME, path="blocks", unit="ns", over_starts="median",
           heading="Step time", noun="step time", scale=STEP_SCALE),
    Metric(key="items_per_s", path="", unit="per_s", better="higher",
           heading="Items per second, queued"),
    Metric(key="latency_p50_ns", path="latency_ns", unit="ns",
           heading="Latency, median", on_page=True),
    Metric(key="latency_p95_ns", path="latency_ns", unit="ns",
           heading="Latency, p95", on_page=True, noun="p95 latency",
           scale=SeriesScale(smallest=0.05, noise_floor=0.01)),
    Metric(key="latency_p99_ns", path="latency_ns", unit="ns", heading="Latency, p99"),
    Metric(key="latency_mean_ns", path="latency_ns", unit="ns", heading="Latency, mean"),
    Metric(key="latency_sd_ns", path="latency_ns", unit="ns",
           heading="Latency, sd"),
    Metric(key="latency_min_ns", path="latency_ns", unit="ns", heading="Latency, min"),
    Metric(key="latency_max_ns", path="latency_ns", unit="ns", heading="Latency, max"),
    Metric(key="host_boundness", path="", unit="factor",
           heading="Latency / step time", on_page=True),
    Metric(key="planned_bytes", path="memory.planned_bytes", unit="bytes", over_starts="max",
           heading="Memory planned", on_page=True, noun="planned memory",
           scale=SeriesScale(smallest=0.01, noise_floor=0.001, exact=True)),
    Metric(key="allocator_peak_bytes", path="memory.allocator_peak_bytes", unit="bytes",
           over_starts="max", heading="Allocator peak", on_page=True, noun="allocator peak",
           scale=SeriesScale(smallest=0.01, noise_floor=0.001, exact=True)),
    Metric(key="process_peak_bytes", path="memory.process_peak_bytes", unit="bytes",
           over_starts="max", heading="Process peak", on_page=True, noun="peak process memory",
           scale=SeriesScale(smallest=0.02, noise_floor=0.002, exact=True)),
    Metric(key="process_baseline_bytes", path="memory.process_baseline_bytes", unit="bytes",
           over_starts="max", heading="Process memory before work", on_page=True),
    Metric(key="gross_mj", path="energy", unit="mj", heading="Energy per step", on_page=True,
           noun="energy per step", scale=SeriesScale(smallest=0.02, noise_floor=0.005)),
    Metric(key="gross_low_mj", path="energy", unit="mj", heading="Energy, low"),
    Metric(key="gross_high_mj", path="energy", unit="mj", heading="Energy, high"),
    Metric(key="net_mj", path="energy", unit="mj", heading="Net of idle", on_page=True),
    Metric(key="program_ops", path="profile.program", unit="count",
           heading="Operations compiled", noun="number of compiled operations",
           # Its bound is far below one operation of the largest program.
           scale=SeriesScale(smallest=0.0, noise_floor=1e-6, smallest_count=1.0, exact=True)),
    Metric(key="host_dispatch_ns", path="profile.dispatch", unit="ns", heading="Host dispatch",
           noun="host dispatch time", scale=SeriesScale(smallest=0.15, noise_floor=0.05)),
    Metric(key="trace_s", path="stages.trace", unit="s", heading="Tracing", noun="tracing time",
           scale=SeriesScale(smallest=0.1, noise_floor=0.02)),
    Metric(key="lower_s", path="stages.lower", unit="s", heading="Lowering",
           noun="lowering time", scale=SeriesScale(smallest=0.1, noise_floor=0.02)),
    Metric(key="first_run_s", path="stages.first_run", unit="s", heading="First step",
           noun="time of the first step", scale=SeriesScale(smallest=0.1, noise_floor=0.02)),
    Metric(key="cold_compile_s", path="stages", unit="s",
           heading="Compilation, caches empty", noun="compile time",
           scale=SeriesScale(smallest=0.05, noise_floor=0.01)),
    Metric(key="numpy_step_ns", path="measured.numpy_step_ns", unit="ns", over_starts="median",
           heading="The same in NumPy", on_page=True),
    Metric(key="new_shape_s", path="measured.new_shape_s", unit="s", over_starts="max",
           heading="First step of a new shape", on_page=True, noun="first step of a new shape",
           scale=SeriesScale(smallest=0.1, noise_floor=0.02)),
    Metric(key="after_new_shapes", path="measured.after_new_shapes", unit="factor",
           over_starts="max", heading="Step after new shapes", on_page=True),
    Metric(key="communicated_bytes", path="measured.communicated_bytes", unit="bytes",
           over_starts="max", heading="Exchanged by devices", on_page=True,
           noun="communication of devices",
           scale=SeriesScale(smallest=0.01, noise_floor=0.001, exact=True)),
    Metric(key="state_bytes_per_device", path="measured.state_bytes_per_device", unit="bytes",
           over_starts="max", heading="State per device", on_page=True,
           noun="state per device",
           scale=SeriesScale(smallest=0.01, noise_floor=0.001, exact=True)),
    Metric(key="warm_compile_s", path="warm", unit="s", heading="Compilation, caches filled",
           noun="compile time with filled caches",
           scale=SeriesScale(smallest=0.1, noise_floor=0.02)),
)
# fmt: on

ERRORS = tuple(
    Metric(
        key=f"{quantity}_error",
        path=f"proof.{quantity}",
        unit="factor",
        heading=f"Error of the {noun}",
        noun=f"error of the {noun} against float64",
        scale=SeriesScale(smallest=0.25, noise_floor=0.05, exact=True),
    )
    for quantity, noun in {
        "logits": "outputs",
        "loss": "loss",
        "gradient": "gradients",
        "update": "update",
        "loss_trace": "losses of the first steps",
        "travel": "updates of the first steps",
        "statistics": "running statistics",
        "running_mean": "running means",
        "running_var": "running variances",
        "norms": "norms of per-sample gradients",
        "clipped_sum": "sum of clipped gradients",
    }.items()
)
"""What an environment's proof measured against the float64 reference, by quantity: only series have
these."""

OF_SAMPLES = tuple(each.key for each in METRICS if each.path in ("latency_ns", "energy"))
"""Computed from the samples of all starts of a contender."""
IN_COLUMNS = tuple(each.key for each in METRICS if each.path.startswith("memory."))
"""Stored as columns of `start_run`."""
IN_MEASURED = tuple(each for each in METRICS if each.measured_key is not None)
"""Stored by key in the column `start_run.measured`."""
ON_PAGE = tuple(each for each in METRICS if each.on_page)
"""The columns of the page's table of costs."""

_OF_SERIES = {each.key: each for each in (*METRICS, *ERRORS) if each.scale is not None}
TRACKED = tuple(_OF_SERIES)
"""The metrics that have series over nights."""


def find_tracked(key: str) -> Metric:
    """The tracked metric of this key. Raises UserError with the names of all if there is none."""
    if key in _OF_SERIES:
        return _OF_SERIES[key]
    raise UserError(f"no metric {key!r} is tracked; choose one of {', '.join(TRACKED)}")


def over_starts() -> dict[str, Aggregate]:
    """By key, how the values of a contender's starts are aggregated."""
    return {each.key: each.over_starts for each in METRICS if each.over_starts is not None}
