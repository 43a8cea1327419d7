"""Records what happens to events: new states, owners and notes."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from benchcore.errors import UserError
from benchcore.store.models import EventChange, EventRow

BY_ITSELF = "deadheat"
"""Who did what no person did."""
LONGEST_NAME = 100
_LONGEST_NOTE = 10_000


def add_change(session: Session, event: EventRow, old: str | None, who: str, note: str) -> None:
    """Record that somebody moved an event from the state `old` (None: opened it) to its present
    one, or left a note. Raises UserError for a name or a note that can't be shown."""
    event.updated_at = datetime.now(UTC)
    session.add(
        EventChange(
            event=event.id,
            at=event.updated_at,
            who=check_text(who, "name", LONGEST_NAME),
            old=old,
            new=event.state,
            note=note if not note else check_text(note, "note", _LONGEST_NOTE),
        )
    )


def check_text(text: str, what: str, longest: int) -> str:
    """Pages and terminals show what people type. Raises UserError if it is not printable and
    short."""
    if not text.strip() or len(text) > longest or not text.replace("\n", " ").isprintable():
        raise UserError(
            f"wanted a {what} of 1 to {longest} printable characters, got {text!r:.100}; change it"
        )
    return text
