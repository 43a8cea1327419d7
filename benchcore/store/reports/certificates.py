"""Certificates of releases: what each did to each tracked metric of each case.

From every duel between two versions that counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, func, select
from sqlalchemy.orm import Session

from benchcore.cell.stopping import average_compilations
from benchcore.store.metric_values import Amounts, read_amounts
from benchcore.store.metrics import TRACKED, Metric, find_tracked
from benchcore.store.models import DuelRun, PairRatio, skip_index
from benchcore.verdict.confirmation.decide import pass_false_discovery
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import Judgement
from benchcore.verdict.starts import certify

ALPHA = 0.05
"""Expected share of false ones among the changes that are certified of one release."""
CHANGED = ("better", "worse")
"""The certificates of a change."""
_OF_DUEL = ("workload", "case_name", "track", "device_fingerprint", "device_model", "method")
_OF_RATIO = ("a_arm", "a_framework", "a_version", "b_version")
_SAMPLED = ("a", "b", "start_log_ratios", "start_compilations")
Release = tuple[str, str, str]
"""A framework, its newer version, and the older one that it was measured beside."""


@dataclass
class _Samples:
    """Log ratios of one case, metric and pair of versions, above 0 = the newer one is better."""

    logs: list[float] = field(default_factory=list[float])
    compilations: list[Hashable | None] = field(default_factory=list[Hashable | None])

    def add(self, logs: Iterable[float], compilations: Iterable[Hashable | None]) -> None:
        self.logs += logs
        self.compilations += compilations


def list_certificates(
    engine: Engine,
    metrics: Sequence[str] = TRACKED,
    *,
    bound: float | None = None,
    campaigns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """A row per case, device, metric and pair of versions, the newest versions first.

    `change` is by how much the newer version is better: 0.05 = 5 % faster; its amounts over the
    older one's are `factors`. A `bound` of None is the metric's own. Step time has one sample per
    start or compilation, another metric one per duel run. Benjamini and Hochberg's procedure
    corrects over all tests of a release. Covers only `campaigns`, if they are given.
    Raises UserError for a metric that is not tracked.
    """
    wanted = [find_tracked(each) for each in metrics]
    condition = (skip_index(PairRatio.kind) == "cross_version") & PairRatio.counts
    if campaigns is not None:
        condition &= DuelRun.campaign.in_(campaigns)
    found = _read_samples(engine, wanted, condition)
    order = {each.key: number for number, each in enumerate(wanted)}
    keys = sorted(found, key=lambda key: order[key[-1]])
    keys.sort(key=lambda key: key[:-1], reverse=True)
    rows = [_certify(key, found[key], find_tracked(key[-1]), bound) for key in keys]
    _correct(rows)
    return rows


def _read_samples(
    engine: Engine, metrics: Sequence[Metric], condition: ColumnElement[bool]
) -> dict[tuple[Any, ...], _Samples]:
    """By what the columns `_OF_DUEL` and `_OF_RATIO` hold, and the metric's key."""
    query = (
        select(
            *(getattr(DuelRun, name) for name in ("id", *_OF_DUEL)),
            *(getattr(PairRatio, name) for name in (*_OF_RATIO, *_SAMPLED)),
        )
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(condition)
        .order_by(DuelRun.started_at, DuelRun.id)
    )
    found = defaultdict[tuple[Any, ...], _Samples](_Samples)
    with Session(engine) as session:
        amounts = read_amounts(session, metrics, condition)
        for pair in session.execute(query):
            key = tuple(getattr(pair, name) for name in (*_OF_DUEL, *_OF_RATIO))
            for metric in metrics:
                logs, compilations = _list_samples(metric, pair, amounts)
                if logs:
                    found[*key, metric.key].add(logs, compilations)
    return found


def _list_samples(
    metric: Metric, pair: Row[Any], amounts: Amounts
) -> tuple[list[float], list[Hashable | None]]:
    """The log ratios of a duel run, and their compilations."""
    if metric.key == STEP_TIME:
        return pair.start_log_ratios, [
            None if each is None else (pair.id, each) for each in pair.start_compilations
        ]
    new, old = (amounts.get((pair.id, name), {}).get(metric.key) for name in (pair.a, pair.b))
    if new is None or old is None:
        return [], []
    return [metric.log_ratio(new, old)], [None]


def _certify(
    key: tuple[Any, ...], samples: _Samples, metric: Metric, bound: float | None
) -> dict[str, Any]:
    scale = metric.tracked_scale
    bound = scale.bound if bound is None else bound
    logs = average_compilations(samples.logs, samples.compilations)
    certificate, found = certify(logs, bound, scale.least_spread)
    return {
        **dict(zip((*_OF_DUEL, *_OF_RATIO, "metric"), key, strict=True)),
        "noun": metric.noun,
        "certificate": certificate,
        "bound": bound,
        **_list_changes(found),
        "factors": metric.factors((found.log_ratio, found.low, found.high)),
        "p": found.p,
        "reason": found.reason,
        "num_samples": len(samples.logs),
    }


def _list_changes(found: Judgement) -> dict[str, float | None]:
    changes = {"change": found.log_ratio, "low": found.low, "high": found.high}
    return {name: None if log is None else math.expm1(log) for name, log in changes.items()}


def _correct(rows: Sequence[dict[str, Any]]) -> None:
    """Mark the changes that do not pass the false-discovery control of their release as not shown:
    a test that found none counts as a test, and never passes."""
    releases = defaultdict[tuple[str, str, str], list[dict[str, Any]]](list)
    for row in rows:
        releases[row["a_framework"], row["a_version"], row["b_version"]].append(row)
    for of_one in releases.values():
        changed = [row["certificate"] in CHANGED for row in of_one]
        p_values = [
            row["p"] if is_changed else 1.0 for row, is_changed in zip(of_one, changed, strict=True)
        ]
        passed = pass_false_discovery(p_values, ALPHA)
        for row, is_changed, passes in zip(of_one, changed, passed, strict=True):
            if is_changed and not passes:
                row["certificate"] = "not shown"
                row["reason"] = f"not significant among the {len(of_one)} tests of this release"


def list_measuring(
    engine: Engine, releases: Collection[Release], most: int, campaigns: Collection[str]
) -> set[str]:
    """The newest `most` campaigns per case, arm and device among those that measured one of these
    releases."""
    case = (DuelRun.workload, DuelRun.case_name, DuelRun.track, DuelRun.device_fingerprint)
    release = (PairRatio.a_framework, PairRatio.a_version, PairRatio.b_version)
    measured = (DuelRun.campaign, PairRatio.a_arm, *case, *release)
    query = (
        select(*measured)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(skip_index(PairRatio.kind) == "cross_version", PairRatio.counts)
        .where(PairRatio.a_version.in_({each[1] for each in releases}))
        .where(DuelRun.campaign.in_(campaigns))
        .group_by(*measured)
        .order_by(func.max(DuelRun.started_at))
    )
    found = defaultdict[tuple[Any, ...], list[str]](list)
    with Session(engine) as session:
        for campaign, *key in session.execute(query):
            if tuple(key[-len(release) :]) in releases:
                found[tuple(key)].append(campaign)
    return {campaign for of_case in found.values() for campaign in of_case[-most:]}
