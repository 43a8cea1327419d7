"""Ends suspicions whose series is not measured any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from itertools import groupby, islice

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.database import begin_writing
from benchcore.store.history.series import read_series, series_key
from benchcore.store.models import IS_NO_CALIBRATION_RUN, DuelRun, SuspicionRow
from benchcore.verdict.history.matching import UNDECIDED
from benchcore.verdict.history.series import SeriesKey
from benchcore.verdict.history.thresholds import GONE_NIGHTS


def end_unmeasured(engine: Engine, ends: Mapping[SeriesKey, datetime]) -> None:
    """End the undecided suspicions whose series was not measured in the last `GONE_NIGHTS` nights.
    A night is a day (UTC) with a duel run. `ends` has the last nights of series that were read."""
    undecided = select(SuspicionRow).where(SuspicionRow.state.in_(UNDECIDED))
    with Session(engine) as session:
        days = _find_newest_days(session)
        rows = session.scalars(undecided.order_by(SuspicionRow.id)).all()
    if len(days) < GONE_NIGHTS:
        return
    for row in (each for each in rows if each.updated_at.date() < days[-1]):
        key, last = series_key(row), row.updated_at
        if key in ends:
            last = max(last, ends[key])
        elif row.state != "open":  # one without an answer stays as it is while its series goes on
            if read_series(engine, key, days=(days[0] - days[-1]).days):
                continue
            last = max([last, *(each.nights[-1].at for each in read_series(engine, key))])
        _end(engine, row.id, last)


def _end(engine: Engine, suspicion: int, last: datetime) -> None:
    """End a suspicion, unless its series' `last` night is one of the newest."""
    with begin_writing(engine) as session:
        days = _list_days(session, last)
        if len(days) >= GONE_NIGHTS:
            row = session.get_one(SuspicionRow, suspicion)
            row.state, row.updated_at = "gone", days[-1]
            row.reason = (
                f"not measured any more: its series has no row in the {len(days)} nights since "
                f"{last:%Y-%m-%d}; until then: {row.reason}"
            )


def _find_newest_days(session: Session) -> list[date]:
    """The newest `GONE_NIGHTS` days with a duel run, newest first."""
    query = select(DuelRun.started_at).where(IS_NO_CALIBRATION_RUN)
    query = query.order_by(DuelRun.started_at.desc()).execution_options(yield_per=500)
    newest = groupby(session.scalars(query), lambda at: at.date())
    return [day for day, _ in islice(newest, GONE_NIGHTS)]


def _list_days(session: Session, after: datetime) -> list[datetime]:
    """The last start of each later day with a duel run, oldest first."""
    query = select(DuelRun.started_at).where(DuelRun.started_at > after, IS_NO_CALIBRATION_RUN)
    last = {at.date(): at for at in session.scalars(query.order_by(DuelRun.started_at))}
    return [at for day, at in last.items() if day > after.date()]
