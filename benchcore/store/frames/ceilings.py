"""Reads the sentinels that count for a campaign, and compares each contender's fastest start with
them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
from sqlalchemy import Engine, Row, not_, or_, select

from benchcore.cell.measure.degraded import leave_out_degraded
from benchcore.planning.catalog import count_devices, winograd_share
from benchcore.protocol import Status
from benchcore.store.frames.reading import (
    Campaigns,
    columns_of,
    list_values,
    of_campaigns,
    select_columns,
)
from benchcore.store.models import ContenderRun, DuelRun, Equivalence, StartRun
from benchcore.verdict.duel.physics import (
    GPU_CACHE_BYTES,
    SENTINELS,
    Ceilings,
    RooflineCheck,
    SentinelTime,
    Work,
    find_ceilings,
    judge_step,
    void_sentinels,
)

RECENT_DAYS = 30
"""How long a ceiling holds: drivers, clocks and cooling change."""


_OF_DUEL = (
    *("id", "campaign", "started_at", "workload", "precision", "device_fingerprint", "method"),
    *("flops_per_step", "least_bytes_per_step"),
)


@dataclass(frozen=True, kw_only=True)
class _SentinelRun:
    campaign: str
    started_at: datetime
    time: SentinelTime


Sentinels = Mapping[tuple[str, int], list[_SentinelRun]]
"""By device fingerprint and METHOD, oldest first."""


class _Window(NamedTuple):
    """The sentinels that count for a duel: from number `first` to before `end` of its `setup`
    (device fingerprint, METHOD), and those of its campaign."""

    setup: tuple[str, int]
    campaign: str
    first: int
    end: int


_SHARES = ("compute_share", "bandwidth_share", "limit_share")
_TAKEN = ("flops_per_step", "least_bytes_per_step", "device", "host")
_READ = (
    *("duel_run", "campaign", "started_at", "workload", "case_name", "precision"),
    *("device_fingerprint", "method", "fastest_step_ns", *_TAKEN),
)


def add_physics(frame: pd.DataFrame, sentinels: Sentinels, unlike: Collection[str]) -> pd.DataFrame:
    """Replace the columns of amounts by each contender's shares of the ceilings.

    Takes `flops_per_step`, `least_bytes_per_step`, `device` and `host`; gives the columns of
    `benchcore.verdict.duel.physics.RooflineCheck`, its reason as `limit_reason`. A contender that
    finished in an impossible time has the status `invalid_physics`, which no document knows: it
    takes the ceilings of the whole campaign to find out. `unlike` are the duel runs whose outputs
    differ.
    """
    find_shape = cache(_find_shape)  # of thousands of rows, of some fifty cases
    read = frame.loc[:, list(_READ)]
    windows = {  # the duels of a night share a few
        row["duel_run"]: _find_window(row, sentinels)
        for row in read.drop_duplicates("duel_run").to_dict("records")
    }

    @cache
    def find(window: _Window, precision: str) -> Ceilings:
        return find_ceilings(_list_times(window, sentinels), precision)

    findings = [
        _judge(
            row,
            find(windows[row["duel_run"]], row["precision"]),
            find_shape(row["workload"], row["case_name"]),
        )
        for row in read.to_dict("records")
    ]
    findings = _void_where_two_are_beyond(frame, findings, unlike)
    added = {
        name: pd.Series(
            [getattr(each, name) for each in findings], index=frame.index, dtype="float64"
        )
        for name in _SHARES
    }
    reasons = pd.Series([each.reason for each in findings], index=frame.index, dtype="str")
    unjudged = pd.Series([each.unjudged for each in findings], index=frame.index, dtype="str")
    judged = frame.drop(columns=list(_TAKEN)).assign(
        **added, limit_reason=reasons, unjudged=unjudged
    )
    impossible = pd.Series([each.impossible for each in findings], index=frame.index, dtype="bool")
    void = impossible & (frame["status"] == "ok")
    for name, value in (("status", _IMPOSSIBLE), ("stage", "block"), ("reason", reasons)):
        judged[name] = judged[name].mask(void, value)
    return judged


_IMPOSSIBLE: Status = "invalid_physics"


def _void_where_two_are_beyond(
    frame: pd.DataFrame, findings: list[RooflineCheck], unlike: Collection[str]
) -> list[RooflineCheck]:
    """The findings, without those about duels in which both frameworks beat the sentinels; or,
    where one framework is alone, two of its environments whose outputs agree."""
    beyond = defaultdict[str, set[str]](set)
    frameworks = frame.groupby("duel_run")["framework"].nunique().to_dict()
    columns = list_values(frame, "duel_run", "framework", "environment_key")
    sides = [
        (run, environment if frameworks[run] == 1 and run not in unlike else framework)
        for run, framework, environment in columns
    ]
    for (run, side), finding in zip(sides, findings, strict=True):
        if finding.impossible:
            beyond[run].add(side)
    words = {run: _ALONE if number == 1 else _BOTH for run, number in frameworks.items()}
    return [
        void_sentinels(finding, words[run])
        if finding.impossible and len(beyond[run]) > 1
        else finding
        for (run, _), finding in zip(sides, findings, strict=True)
    ]


_BOTH, _ALONE = "both frameworks", "two environments, whose outputs agree,"


def read_unlike(engine: Engine, campaign: Campaigns) -> frozenset[str]:
    """The duel runs in which two sides' outputs differ."""
    query = select(Equivalence.duel_run).where(not_(Equivalence.agrees)).distinct()
    with engine.connect() as connection:
        return frozenset(connection.scalars(of_campaigns(query.join(DuelRun), campaign)))


def _find_shape(workload: str, case: str) -> tuple[int, float]:
    """How many devices a case uses, and its Winograd share."""
    return count_devices(workload, case), winograd_share(workload, case)


def _find_window(row: Mapping[str, Any], sentinels: Sentinels) -> _Window:
    setup, begun = (row["device_fingerprint"], row["method"]), row["started_at"]
    runs = sentinels.get(setup, [])
    first = bisect_left(runs, begun - timedelta(days=RECENT_DAYS), key=_begin)
    return _Window(setup, row["campaign"], first, bisect_right(runs, begun, key=_begin))


def _begin(run: _SentinelRun) -> datetime:
    return run.started_at


def _list_times(window: _Window, sentinels: Sentinels) -> list[SentinelTime]:
    return [
        each.time
        for number, each in enumerate(sentinels.get(window.setup, ()))
        if window.first <= number < window.end or each.campaign == window.campaign
    ]


def _judge(row: Mapping[str, Any], ceilings: Ceilings, shape: tuple[int, float]) -> RooflineCheck:
    """Judge the fastest start: one that left its work out shows, however slow the others were."""
    gpu = row["device"]["kind"] == "gpu"
    # A ceiling is one GPU's. Several devices of a CPU are parts of it.
    devices = shape[0] if gpu else 1
    work = Work(
        flops=row["flops_per_step"] / devices,
        least_bytes=row["least_bytes_per_step"] / devices,
        winograd_share=shape[1],
        cache_bytes=GPU_CACHE_BYTES if gpu else row["host"].get("cache_bytes"),
    )
    step_ns = row["fastest_step_ns"]
    return judge_step(work, ceilings, None if pd.isna(step_ns) else step_ns)


def read_sentinels(engine: Engine, campaign: Campaigns) -> Sentinels:
    """The sentinels of a campaign and of the RECENT_DAYS before it, on its devices: those that
    finished, and agree with each other."""
    disagrees = select(Equivalence.duel_run).where(
        Equivalence.duel_run == DuelRun.id,
        not_(Equivalence.agrees),
        or_(Equivalence.a == ContenderRun.name, Equivalence.b == ContenderRun.name),
    )
    query = (
        select_columns(*columns_of(DuelRun, *_OF_DUEL), StartRun.contender, StartRun.blocks)
        .join(ContenderRun)
        .join(StartRun)
        .where(
            DuelRun.workload.in_(SENTINELS),
            not_(DuelRun.case_name.startswith("tiny")),  # too small to reach a ceiling
            ContenderRun.status == "ok",
            not_(disagrees.exists()),
        )
    )
    sentinels = defaultdict[tuple[str, int], list[_SentinelRun]](list)
    with engine.connect() as connection:
        if campaign is not None:
            own = of_campaigns(select(DuelRun.device_fingerprint, DuelRun.started_at), campaign)
            devices, begun = set[str](), list[datetime]()
            for device, at in connection.execute(own):
                devices.add(device)
                begun.append(at)
            if not begun:
                return sentinels
            oldest, newest = min(begun) - timedelta(days=RECENT_DAYS), max(begun)
            query = query.where(
                DuelRun.started_at.between(oldest, newest), DuelRun.device_fingerprint.in_(devices)
            )
        for row in connection.execute(query):
            if row.blocks:
                run = _SentinelRun(
                    campaign=row.campaign, started_at=row.started_at, time=_find_fastest(row)
                )
                sentinels[row.device_fingerprint, row.method].append(run)
    for runs in sentinels.values():
        runs.sort(key=_begin)
    return sentinels


def _find_fastest(row: Row[Any]) -> SentinelTime:
    undisturbed = [each["elapsed_ns"] / each["steps"] for each in leave_out_degraded(row.blocks)]
    return SentinelTime(
        source=f"{row.contender} of {row.id}",
        workload=row.workload,
        precision=row.precision,
        flops=row.flops_per_step,
        least_bytes=row.least_bytes_per_step,
        step_ns=min(undisturbed, default=None),
    )
