"""How far confirmed suspicions moved the level of their series."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchcore.store.history.series import series_key
from benchcore.store.models import SuspicionRow
from benchcore.verdict.confirmation.event_states import find_shift
from benchcore.verdict.history.series import Series


def find_ratio(row: SuspicionRow) -> float:
    """The new level over the old one: as confirmed, else as the history showed it. Nights that
    opened a suspicion may have shown another change than fresh starts."""
    moved = find_shift(row.finding or {}) if row.state == "confirmed" else {}
    log_ratio = moved.get("log_ratio") if moved.get("verdict") == "different" else None
    return row.ratio if log_ratio is None else math.exp(log_ratio)


def list_framework_moves(
    session: Session, row: SuspicionRow, series: Series
) -> Iterator[tuple[int, float]]:
    """The days since which a framework moved the log ratio of the suspicion's series, as others
    confirmed, and by how much."""
    days = {run: series.nights[row].number for run, row in series.list_rows().items()}
    confirmed = select(SuspicionRow).where(SuspicionRow.state == "confirmed")
    for each in session.scalars(confirmed.where(SuspicionRow.id != row.id)):
        of_framework = (each.finding or {}).get("culprit") in ("a", "b", "both")
        if of_framework and each.trigger != "drift" and series_key(each) == series.key:
            day = days.get(each.since_run, each.since.date().toordinal())
            yield day, math.log(find_ratio(each))
