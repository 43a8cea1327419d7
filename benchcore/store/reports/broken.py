"""What broke: a contender of a framework's newest version that ran, and failed in two nights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.history.series import ROLLING
from benchcore.store.models import ContenderRun, DuelRun
from benchcore.store.reports.void import ENDED_WELL

_CASE = (DuelRun.workload, DuelRun.case_name, DuelRun.track, DuelRun.device_fingerprint)
_ARM = (ContenderRun.framework, ContenderRun.arm)
_ENDED = (ContenderRun.version, ContenderRun.status, ContenderRun.stage, ContenderRun.reason)
_RAN = (
    select(DuelRun.campaign, DuelRun.started_at, *_CASE, *_ARM, *_ENDED)
    .join(DuelRun, DuelRun.id == ContenderRun.duel_run)
    .where(ContenderRun.role.in_(ROLLING), DuelRun.campaign.startswith("nightly-", autoescape=True))
    .order_by(DuelRun.started_at.desc())
)


def list_broken(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """The contenders that failed in this night and in its profile's night before that ran them, and
    ended well in the one before that. So each is listed in one night only, and what failed in one
    night in none. `ran` is the version that ended well, `since` the date of the first night that
    failed."""
    found = list[dict[str, Any]]()
    failed = ContenderRun.status.not_in(ENDED_WELL)
    with Session(engine) as session:
        for row in session.execute(_RAN.where(DuelRun.campaign == campaign, failed)).mappings():
            same = [column == row[column.key] for column in (*_CASE, *_ARM)]
            earlier = _RAN.where(
                DuelRun.campaign != campaign,
                DuelRun.campaign.startswith(campaign[: -len("2026-01-01")], autoescape=True),
                DuelRun.started_at < row["started_at"],
                *same,
            )
            before = session.execute(earlier.limit(2)).mappings().all()
            if [each["status"] in ENDED_WELL for each in before] == [False, True]:
                since, ran = before[0]["started_at"].date(), before[1]["version"]
                found.append({**row, "since": since.isoformat(), "ran": ran})
    return sorted(found, key=_key)


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(row[column.key] for column in (*_CASE, *_ARM))
