"""Stores events: one per confirmed change, with its owner and every change by people."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.errors import UserError
from benchcore.store.database import begin_writing
from benchcore.store.history.conditions import read_conditions
from benchcore.store.history.event_changes import BY_ITSELF, LONGEST_NAME, add_change, check_text
from benchcore.store.history.series import series_key
from benchcore.store.history.suspicions import changed_conditions
from benchcore.store.models import DuelRun, EventChange, EventRow, SuspicionRow
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.confirmation.event_states import (
    BASELINES,
    OPEN,
    check_move,
    find_shift,
    first_state,
)

_REPEATED = ("suspicion", "cause", "culprit", "subject", "series", "metric", "change", "size")
"""The details of an alert that stay with its event, for the message that the change is gone."""


def store_finding(
    engine: Engine,
    suspicion: int,
    finding: Finding,
    *,
    alert: Mapping[str, Any] | None = None,
    **more: Any,
) -> None:
    """Store the finding of a confirmation, together with `more`. A confirmed one opens an event, or
    is the whole of one that grew; its `alert` waits for the outbox, and the pages show its text."""
    with begin_writing(engine) as session:
        row = session.get_one(SuspicionRow, suspicion)
        row.state = "open" if finding.verdict == "more" else finding.verdict
        stored = {**dataclasses.asdict(finding), **more}
        if alert is not None and finding.verdict == "confirmed":
            stored["alert"] = {
                **{name: alert[name] for name in ("text", "group") if name in alert},
                "details": {key: alert.get("details", {}).get(key) for key in _REPEATED},
            }
        row.finding = stored
        if finding.verdict == "confirmed":
            _record_confirmed(session, row, finding, None if alert is None else dict(alert))


def _record_confirmed(
    session: Session, row: SuspicionRow, finding: Finding, alert: dict[str, Any] | None
) -> None:
    """Open an event, or let the open one grow whose change this suspicion has as a part."""
    if session.scalar(select(EventRow).where(EventRow.suspicion == row.id)) is not None:
        return
    event = _find_part(session, row, finding.culprit)
    if event is None:
        _open_event(session, row, finding.culprit, alert)
        return
    unsent = event.unsent_alert
    if alert is not None and (unsent is None or "state" in unsent["details"]):
        alert["details"] = {**alert["details"], "state": "grown"}
    event.suspicion, event.unsent_alert = row.id, alert
    add_change(session, event, event.state, BY_ITSELF, f"it grew: {row.reason}; {finding.reason}")


def _find_part(session: Session, row: SuspicionRow, culprit: str) -> EventRow | None:
    """The open event that this change continues: of the same series, cause, direction and first
    night, with another last night; None = there is none."""
    query = (
        select(EventRow, SuspicionRow)
        .join(SuspicionRow, SuspicionRow.id == EventRow.suspicion)
        .where(EventRow.state.in_(OPEN))
        .where(SuspicionRow.before_run == row.before_run)
        .where(SuspicionRow.after_run != row.after_run)
        .order_by(EventRow.id)
    )
    for event, other in session.execute(query):
        same = (other.finding or {}).get("culprit") == culprit
        same = same and (other.ratio > 1) == (row.ratio > 1)
        if same and series_key(other) == series_key(row):
            return event
    return None


def _open_event(
    session: Session, row: SuspicionRow, culprit: str, alert: dict[str, Any] | None
) -> None:
    state, now = first_state(culprit), datetime.now(UTC)
    event = EventRow(
        suspicion=row.id, state=state, unsent_alert=alert, opened_at=now, updated_at=now
    )
    session.add(event)
    session.flush()
    add_change(session, event, None, BY_ITSELF, "opened by a confirmation")


def list_unsent(engine: Engine) -> dict[int, dict[str, Any]]:
    """The alerts that are not in the outbox yet, by event: of confirmed changes, of events that
    became `fixed` by themselves, and of earlier processes that died."""
    with Session(engine) as session:
        rows = session.scalars(select(EventRow).order_by(EventRow.id))
        return {row.id: row.unsent_alert for row in rows if row.unsent_alert is not None}


def record_sent(engine: Engine, event: int) -> None:
    """Record that an event's alert is in the outbox, which sends it."""
    with begin_writing(engine) as session:
        _get(session, event).unsent_alert = None


EVENT_COLUMNS = (
    *("id", "suspicion", "state", "owner", "series", "device", "since", "culprit", "reason"),
    *("ratio", "low", "high", "is_baseline", "opened_at"),
)
"""What `list_events` describes each event by."""


def list_events(engine: Engine) -> list[dict[str, Any]]:
    """Every event, newest first: of what, how large, which framework, and its state."""
    query = (
        select(EventRow, SuspicionRow)
        .join(SuspicionRow, SuspicionRow.id == EventRow.suspicion)
        .order_by(EventRow.id.desc())
    )
    with Session(engine) as session:
        return [_describe(event, row) for event, row in session.execute(query)]


def show_event(engine: Engine, event: int) -> dict[str, Any]:
    """One event with its device's model, its history, what was found, and the conditions that
    changed with it. Raises UserError if there is none."""
    with Session(engine) as session:
        found = _get(session, event)
        row = session.get_one(SuspicionRow, found.suspicion)
        known = read_conditions(engine, runs=[row.before_run, row.after_run])
        changes = session.scalars(
            select(EventChange).where(EventChange.event == event).order_by(EventChange.id)
        )
        return {
            **_describe(found, row),
            "device_model": session.get_one(DuelRun, row.after_run).device_model,
            "finding": row.finding,
            "conditions": [dataclasses.asdict(each) for each in changed_conditions(row, known)],
            "history": [
                {
                    "at": each.at.isoformat(timespec="seconds"),
                    **{name: getattr(each, name) for name in ("who", "old", "new", "note")},
                }
                for each in changes
            ],
        }


def move_event(engine: Engine, event: int, state: str, *, who: str, note: str = "") -> None:
    """Change an event's state. Raises UserError if that change is not allowed."""
    with begin_writing(engine) as session:
        found = _get(session, event)
        old, found.state = found.state, check_move(found.state, state)  # type: ignore[arg-type]
        add_change(session, found, old, who, note)


def annotate_event(
    engine: Engine, event: int, *, who: str, note: str = "", owner: str | None = None
) -> None:
    """Add a note, or name an owner. Raises UserError where there is neither."""
    if not note and owner is None:
        raise UserError("wanted a note or an owner, got neither; write --note or --owner")
    with begin_writing(engine) as session:
        found = _get(session, event)
        if owner is not None:
            found.owner = check_text(owner, "owner", LONGEST_NAME)
            note = f"owner: {owner}" + (f"; {note}" if note else "")
        add_change(session, found, found.state, who, note)


def _get(session: Session, event: int) -> EventRow:
    found = session.get(EventRow, event)
    if found is None:
        known = ", ".join(map(str, session.scalars(select(EventRow.id)))) or "none yet"
        raise UserError(f"no event {event}; there are {known}; see `deadheat events`")
    return found


def _describe(event: EventRow, row: SuspicionRow) -> dict[str, Any]:
    finding: Mapping[str, Any] = row.finding or {}
    return {
        **{name: getattr(event, name) for name in ("id", "suspicion", "state", "owner")},
        "series": series_key(row).title,
        "device": row.device_fingerprint,
        "since": row.since.date().isoformat(),
        "culprit": finding.get("names", {}).get(finding.get("culprit"), finding.get("culprit")),
        "reason": finding.get("reason"),
        **dict(zip(("ratio", "low", "high"), _ratios(row), strict=True)),
        "is_baseline": event.state in BASELINES,
        "opened_at": event.opened_at.isoformat(timespec="seconds"),
    }


def _ratios(row: SuspicionRow) -> list[float | None]:
    """The new level over the old one and its interval: as confirmed, else as the history showed."""
    change = find_shift(row.finding or {})
    if change.get("log_ratio") is None:
        return [row.ratio, row.low, row.high]
    logs = [change.get(name) for name in ("log_ratio", "low", "high")]
    return [None if log is None else math.exp(log) for log in logs]
