"""Closes events whose change is gone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.database import begin_writing
from benchcore.store.history.confirmed_moves import find_ratio
from benchcore.store.history.event_changes import BY_ITSELF, add_change
from benchcore.store.history.series import series_key
from benchcore.store.models import EventChange, EventRow, SuspicionRow
from benchcore.verdict.confirmation.event_states import OPEN
from benchcore.verdict.confirmation.machine_check import KNOWN_LEVEL
from benchcore.verdict.history.detect import Detection
from benchcore.verdict.history.levels import SuspectedNights
from benchcore.verdict.history.recovery import find_recovery
from benchcore.verdict.history.series import Night, Series, SeriesKey
from benchcore.verdict.history.thresholds import SAME_SHIFT_NIGHTS


def close_recovered(engine: Engine, histories: Iterable[tuple[Series, Detection]]) -> None:
    """Set the open events of these series to `fixed`, with the reason, if the last nights are
    certainly back at the level before; an alert waits for the outbox. What a framework changed must
    have gone with that environment. If its series has suspicions of another cause since, or a
    person opened the event again, people decide."""
    known = {series.key: (series, found) for series, found in histories}
    for event, row, later in _list_open(engine, known.keys()):
        back = _find_recovery(*known[series_key(row)], row, later)
        if back:
            _close(engine, event, back)


def _list_open(
    engine: Engine, keys: Collection[SeriesKey]
) -> list[tuple[int, SuspicionRow, Sequence[SuspicionRow]]]:
    """The ids and suspicions of the open events of these series, and the series' suspicions
    since."""
    closed = select(EventChange.event).where(
        EventChange.who == BY_ITSELF, EventChange.new == "fixed"
    )
    query = (
        select(EventRow, SuspicionRow)
        .join(SuspicionRow, SuspicionRow.id == EventRow.suspicion)
        .where(EventRow.state.in_(OPEN), EventRow.id.not_in(closed))
    )
    with Session(engine) as session:
        rows = session.execute(query)
        events = [(event.id, row) for event, row in rows if series_key(row) in keys]
        if not events:
            return []
        of_key: dict[SeriesKey, list[SuspicionRow]] = {}
        for each in session.scalars(select(SuspicionRow)):
            of_key.setdefault(series_key(each), []).append(each)
        session.expunge_all()
    return [
        (event, row, [each for each in of_key[series_key(row)] if _is_since(each, row)])
        for event, row in events
    ]


def _is_since(other: SuspicionRow, row: SuspicionRow) -> bool:
    return other.id != row.id and (other.id > row.id or other.since >= row.since)


def _find_recovery(
    series: Series, found: Detection, row: SuspicionRow, later: Iterable[SuspicionRow]
) -> Night | None:
    finding = row.finding or {}
    culprit, move = finding.get("culprit"), math.log(find_ratio(row))
    if any(_is_of_other_cause(each, culprit, move) for each in later):
        return None
    nights = SuspectedNights(
        trigger=row.trigger, before=row.before_run, since=row.since_run, after=row.after_run
    )
    of_machine = culprit == "infrastructure"
    back = find_recovery(series, nights, move, found, of_machine=of_machine)
    if back is None:
        return None
    after = series.nights[series.list_rows()[row.after_run]]
    sides = {"a": (True, False), "b": (False, True)}.get(str(culprit), (True, True))
    environments = zip(sides, after.environments, back.environments, strict=True)
    has_gone = any(old != new for is_culprit, old, new in environments if is_culprit)
    return back if of_machine or has_gone else None


def _is_of_other_cause(later: SuspicionRow, culprit: str | None, move: float) -> bool:
    """An unknown change the other way may hide what a framework changed."""
    if later.state == "unknown":
        return culprit != "infrastructure" and (later.ratio > 1) != (move > 0)
    if later.state == "confirmed":
        return (later.finding or {}).get("culprit") != culprit
    return later.state == "open"


def _close(engine: Engine, event: int, back: Night) -> None:
    with begin_writing(engine) as session:
        row = session.get_one(EventRow, event)
        if row.state not in OPEN or row.unsent_alert is not None:
            return  # the outbox first takes the alert of the shift
        old, row.state = row.state, "fixed"
        note = f"the nights since {back.at:%Y-%m-%d} are back at the old level"
        add_change(session, row, old, BY_ITSELF, note)
        suspicion = session.get_one(SuspicionRow, row.suspicion)
        alert = (suspicion.finding or {}).get("alert", {"text": series_key(suspicion).title})
        details = {**alert.get("details", {}), "state": row.state}
        row.unsent_alert = {**alert, "details": details, "note": note}
        _answer_return(session, event, suspicion, back)


def _answer_return(session: Session, event: int, row: SuspicionRow, back: Night) -> None:
    """Refute the suspicion of the return itself that fresh starts left unknown, as after a change
    of few nights: it would be measured again for as long as it lasts."""
    near = timedelta(days=SAME_SHIFT_NIGHTS)
    reason = f"{KNOWN_LEVEL}, before event {event}"
    for each in session.scalars(select(SuspicionRow).where(SuspicionRow.state == "unknown")):
        is_return = (find_ratio(each) > 1) != (find_ratio(row) > 1)
        if not is_return or abs(each.since - back.at) > near or series_key(each) != series_key(row):
            continue
        finding = each.finding or {}
        level = {**(finding.get("machine_level") or {}), "verdict": "same", "reason": reason}
        answer = {"verdict": "refuted", "culprit": "neither", "reason": f"the ratio is {reason}"}
        each.state, each.finding = "refuted", {**finding, **answer, "machine_level": level}
