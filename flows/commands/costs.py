"""What each contender's step took, as tables on the console: one a case, a column a contender."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from dashboards.tables import describe_unsteady
from dashboards.wording import (
    format_bytes,
    format_energy,
    format_factor,
    format_ns,
    format_rate,
    format_seconds,
)
from flows.printing import print_rows

_Words = Callable[[Any], str]
_QUANTITIES: Mapping[str, tuple[str, _Words]] = {
    "median_step_ns": ("step, queued", format_ns),
    "items_per_s": ("items a second, queued", format_rate),
    "latency_p50_ns": ("latency p50", format_ns),
    "latency_p95_ns": ("latency p95", format_ns),
    "latency_p99_ns": ("latency p99", format_ns),
    "latency_mean_ns": ("latency mean", format_ns),
    "latency_sd_ns": ("latency sd", format_ns),
    "latency_min_ns": ("latency min", format_ns),
    "latency_max_ns": ("latency max", format_ns),
    "host_boundness": ("latency against queued", format_factor),
    "planned_bytes": ("memory planned", format_bytes),
    "allocator_peak_bytes": ("allocator's peak", format_bytes),
    "process_peak_bytes": ("process's peak", format_bytes),
    "process_baseline_bytes": ("of it before work", format_bytes),
    "gross_mj": ("energy a step, gross", format_energy),
    "net_mj": ("energy a step, net", format_energy),
    "cold_compile_s": ("compilation, caches empty", format_seconds),
    "warm_compile_s": ("compilation, caches filled", format_seconds),
}


def print_costs(contenders: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `benchcore.store.outcome.list_contenders`, with a remark on who was not steady
    when its clock began."""
    for case, of_case in groupby(contenders, key=lambda row: row["case"]):
        rows = list(of_case)
        names = [row["name"] for row in rows]
        table = [
            {"": words, **{row["name"]: form(row[key]) for row in rows}}
            for key, (words, form) in _QUANTITIES.items()
        ]
        remarks = {row["name"]: describe_unsteady(row) for row in rows}
        if any(remarks.values()):
            table.append({"": "when its clock began", **remarks})
        print_rows(table, ("", *names), title=f"{case}: what a step took")
