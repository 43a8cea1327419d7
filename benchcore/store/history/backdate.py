"""Sets the times of suspicions and events as if every night had been judged in its turn: for
histories that are stored all at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.database import begin_writing
from benchcore.store.models import DuelRun, EventChange, EventRow, SuspicionRow

_UNTIL = {"suspicion": timedelta(hours=1), "event": timedelta(hours=9), "change": timedelta(days=1)}
"""From the night that shows a change to its suspicion, from that to the event, and from change to
change of an event."""


def backdate(engine: Engine) -> None:
    """Set when suspicions and events were opened and changed, from the nights they rest on."""
    with begin_writing(engine) as session:
        for row in session.scalars(select(SuspicionRow)):
            shown = session.get_one(DuelRun, row.after_run)
            row.opened_at = row.updated_at = shown.ended_at + _UNTIL["suspicion"]
            event = session.scalar(select(EventRow).where(EventRow.suspicion == row.id))
            if event is not None:
                row.updated_at = event.opened_at = row.opened_at + _UNTIL["event"]
                event.updated_at = _backdate_changes(session, event)


def _backdate_changes(session: Session, event: EventRow) -> datetime:
    changes = select(EventChange).where(EventChange.event == event.id).order_by(EventChange.id)
    at = event.opened_at
    for number, change in enumerate(session.scalars(changes)):
        at = change.at = event.opened_at + number * _UNTIL["change"]
    return at
