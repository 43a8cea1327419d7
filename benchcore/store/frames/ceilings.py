"""Reads the sentinels of a campaign, and compares every contender's fastest start with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pandas as pd
from sqlalchemy import Engine, not_, or_, select
from sqlalchemy.orm import Session

from benchcore.planning.catalog import winograd_share
from benchcore.protocol import Status
from benchcore.store.frames.reading import select_columns
from benchcore.store.models import ContenderRun, DuelRun, Equivalence, StartRun
from benchcore.verdict.duel.physics import (
    GPU_CACHE_BYTES,
    SENTINELS,
    RooflineCheck,
    SentinelTime,
    Work,
    find_ceilings,
    judge_step,
)

Sentinels = Mapping[tuple[str, str], list[SentinelTime]]
"""By campaign and device fingerprint."""
_SHARES = ("compute_share", "bandwidth_share", "limit_share")


def add_physics(frame: pd.DataFrame, sentinels: Sentinels) -> pd.DataFrame:
    """Put what the ceilings say of each contender in place of the columns it takes to say it.

    Takes `flops_per_step`, `least_bytes_per_step`, `device` and `host`; gives the columns of
    `benchcore.verdict.duel.physics.RooflineCheck`, its reason as `limit_reason`. A contender that
    finished in an impossible time has the status `invalid_physics`, which no document knows: it
    takes the ceilings of the whole campaign to find out.
    """
    findings = [_judge(row, sentinels) for row in frame.to_dict("records")]
    added = {
        name: pd.Series(
            [getattr(each, name) for each in findings], index=frame.index, dtype="float64"
        )
        for name in _SHARES
    }
    reasons = pd.Series([each.reason for each in findings], index=frame.index, dtype="str")
    taken = ["flops_per_step", "least_bytes_per_step", "device", "host"]
    judged = frame.drop(columns=taken).assign(**added, limit_reason=reasons)
    impossible = pd.Series([each.impossible for each in findings], index=frame.index, dtype="bool")
    void = impossible & (frame["status"] == "ok")
    for name, value in (("status", _IMPOSSIBLE), ("stage", "block"), ("reason", reasons)):
        judged[name] = judged[name].mask(void, value)
    return judged


_IMPOSSIBLE: Status = "invalid_physics"


def _judge(row: Mapping[str, Any], sentinels: Sentinels) -> RooflineCheck:
    """By the fastest start: one that left its work out shows, however slow the others were."""
    gpu = row["device"]["kind"] == "gpu"
    work = Work(
        flops=row["flops_per_step"],
        least_bytes=row["least_bytes_per_step"],
        winograd_share=winograd_share(row["workload"], row["case_name"]),
        cache_bytes=GPU_CACHE_BYTES if gpu else row["host"].get("cache_bytes"),
    )
    mine = sentinels.get((row["campaign"], row["device_fingerprint"]), [])
    step_ns = row["fastest_step_ns"]
    return judge_step(
        work, find_ceilings(mine, row["precision"]), None if pd.isna(step_ns) else step_ns
    )


def read_sentinels(engine: Engine, campaign: str | None) -> Sentinels:
    """The sentinels that did what they should: finished, and in agreement with each other."""
    disagrees = select(Equivalence.duel_run).where(
        Equivalence.duel_run == DuelRun.id,
        not_(Equivalence.agrees),
        or_(Equivalence.a == ContenderRun.name, Equivalence.b == ContenderRun.name),
    )
    query = (
        select_columns(DuelRun, StartRun.blocks)
        .join(ContenderRun)
        .join(StartRun)
        .where(
            DuelRun.workload.in_(SENTINELS),
            not_(DuelRun.case_name.startswith("tiny")),  # too small to reach a ceiling
            ContenderRun.status == "ok",
            not_(disagrees.exists()),
        )
    )
    if campaign is not None:
        query = query.where(DuelRun.campaign == campaign)
    sentinels = defaultdict[tuple[str, str], list[SentinelTime]](list)
    with Session(engine) as session:
        for duel, blocks in session.execute(query):
            if blocks:
                sentinels[duel.campaign, duel.device_fingerprint].append(_fastest(duel, blocks))
    return sentinels


def _fastest(duel: DuelRun, blocks: list[Mapping[str, Any]]) -> SentinelTime:
    return SentinelTime(
        workload=duel.workload,
        precision=duel.precision,
        flops=duel.flops_per_step,
        least_bytes=duel.least_bytes_per_step,
        step_ns=min(each["elapsed_ns"] / each["steps"] for each in blocks),
    )
