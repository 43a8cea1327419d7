"""Pinned releases as a history: small changes of several releases in a row that add up."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import Version
from sqlalchemy import Engine

from benchcore.store.metrics import TRACKED, Metric, find_tracked
from benchcore.store.reports.certificates import list_certificates
from benchcore.verdict.releases import ReleaseStep, ReleaseTrend, find_trend

_OF_CASE = (
    *("workload", "case_name", "track", "device_fingerprint", "device_model", "method"),
    "a_arm",
)


def list_trends(
    engine: Engine, framework: str, newest: str, metrics: Sequence[str] = TRACKED
) -> list[dict[str, Any]]:
    """`find_trends` in the certificates of all campaigns."""
    return find_trends(list_certificates(engine, metrics), framework, newest)


def find_trends(
    certificates: Iterable[Mapping[str, Any]], framework: str, newest: str
) -> list[dict[str, Any]]:
    """A row per case and metric in which the releases up to `newest` add up to more than its
    smallest change: its `change` with a 99 % interval, as a certificate has it, and the `factors`
    of the newest version's amount over the version `since`'s.

    Every pair of neighbouring versions counts that was measured in one duel, in any campaign. Each
    METHOD has a history of its own.
    """
    chains = defaultdict[tuple[Any, ...], list[Mapping[str, Any]]](list)
    for row in certificates:
        if row["a_framework"] != framework or row["low"] is None:
            continue
        if Version(row["a_version"]) > Version(row["b_version"]):
            chains[*(row[name] for name in _OF_CASE), row["metric"]].append(row)
    found = []
    for key, rows in sorted(chains.items()):
        metric = find_tracked(key[-1])
        trend = find_trend(_chain(rows, newest), metric.tracked_scale.smallest)
        if trend is not None:
            named = dict(zip((*_OF_CASE, "metric"), key, strict=True))
            found.append({**named, "noun": metric.noun, **_describe(trend, metric)})
    return found


def _chain(rows: Iterable[Mapping[str, Any]], newest: str) -> list[ReleaseStep]:
    """The steps from one version to the next below it, newest first, until one is missing."""
    steps = list[ReleaseStep]()
    below = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        below[row["a_version"]].append(row)
    version = newest
    while below[version]:
        row = max(below[version], key=lambda each: Version(each["b_version"]))
        low, high = math.log1p(row["low"]), math.log1p(row["high"])
        step = ReleaseStep(
            new=version,
            old=row["b_version"],
            log_ratio=math.log1p(row["change"]),
            half_width=(high - low) / 2,
        )
        steps.append(step)
        version = step.old
    return steps


def _describe(trend: ReleaseTrend, metric: Metric) -> dict[str, Any]:
    logs = (trend.log_ratio, trend.low, trend.high)
    return {
        **dict(zip(("change", "low", "high"), map(math.expm1, logs), strict=True)),
        "since": trend.since,
        "num_releases": trend.num_releases,
        "factors": metric.factors(logs),
    }
