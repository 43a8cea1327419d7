"""What each contender of campaigns took before, in the same environment on the same device."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
from sqlalchemy import Engine, and_, false, func, select
from sqlalchemy.orm import Session, aliased

from benchcore.protocol import CALIBRATION_TRACK
from benchcore.store.frames.reading import Campaigns, of_campaigns, read_frame, select_columns
from benchcore.store.models import ContenderRun, DuelRun, StartRun

WINDOW = timedelta(days=60)
_SAME_DUEL = ("workload", "case_name", "track", "device_fingerprint", "method")
_SAME_CONTENDER = ("arm", "environment_key")
_KEYS = ["duel_run", "name"]


def past_frame(engine: Engine, campaign: Campaigns) -> pd.DataFrame:
    """One row per earlier duel run of a finished contender, within `WINDOW` before its campaign:
    `duel_run` and `name` of the contender now, `earlier` and `median_step_ns` of then, newest
    first.

    Earlier duel runs have the same case, device, weights, METHOD, arm and environment.
    """
    now, before = aliased(ContenderRun), aliased(DuelRun)
    starts = select(DuelRun.campaign, func.min(DuelRun.started_at)).group_by(DuelRun.campaign)
    with Session(engine) as session:
        rows = session.execute(of_campaigns(starts, campaign)).all()
    since = {name: begun - WINDOW for name, begun in rows}
    query = (
        select_columns(
            *(DuelRun.campaign, DuelRun.id.label("duel_run"), now.name, before.id.label("earlier")),
            *(before.started_at.label("earlier_at"), StartRun.median_step_ns),
        )
        .join(now, now.duel_run == DuelRun.id)
        .join(
            before,
            and_(
                *(getattr(before, key) == getattr(DuelRun, key) for key in _SAME_DUEL),
                before.checkpoint.is_not_distinct_from(DuelRun.checkpoint),
                before.campaign != DuelRun.campaign,
                before.started_at < DuelRun.started_at,
            ),
        )
        .join(
            ContenderRun,
            and_(
                ContenderRun.duel_run == before.id,
                *(getattr(ContenderRun, key) == getattr(now, key) for key in _SAME_CONTENDER),
            ),
        )
        .join(
            StartRun,
            and_(StartRun.duel_run == before.id, StartRun.contender == ContenderRun.name),
        )
        .where(
            DuelRun.track != CALIBRATION_TRACK,
            DuelRun.dataset.is_(None),
            before.dataset.is_(None),
            now.status == "ok",
            ContenderRun.status == "ok",
            StartRun.median_step_ns.is_not(None),
            before.started_at >= min(since.values()) if since else false(),
        )
    )
    found = read_frame(engine, query, campaign)
    found = found.loc[found["earlier_at"] >= found["campaign"].map(since.get)]
    medians = found.groupby([*_KEYS, "earlier", "earlier_at"])["median_step_ns"].median()
    return (
        medians.reset_index()
        .sort_values("earlier_at", ascending=False)
        .loc[:, [*_KEYS, "earlier", "median_step_ns"]]
        .reset_index(drop=True)
    )
