"""Suspicions, events and what people did about them, as documents: they outlive the database.

One document per suspicion, in `history` of the state folder. `save_history` brings the documents up
to date with the database, `load_history` fills a database from them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from benchcore.protocol import write_json
from benchcore.state import State
from benchcore.store.database import begin_writing, continue_numbers
from benchcore.store.incoming.documents import read_storable
from benchcore.store.models import (
    Base,
    DuelRun,
    EventChange,
    EventRow,
    SuspicionRow,
)
from benchcore.store.utc_datetime import UtcDateTime

_SCHEMA = 1
_TABLES = (SuspicionRow, EventRow, EventChange)
_RUNS = ("before_run", "since_run", "after_run")


def save_history(engine: Engine, state: State) -> None:
    """Write the document of every suspicion that is new or changed."""
    with Session(engine) as session:
        events = {each.suspicion: each for each in session.scalars(select(EventRow))}
        changes: dict[int, list[EventChange]] = {}
        for change in session.scalars(select(EventChange).order_by(EventChange.id)):
            changes.setdefault(change.event, []).append(change)
        documents = [
            _describe(row, events.get(row.id), changes)
            for row in session.scalars(select(SuspicionRow).order_by(SuspicionRow.id))
        ]
    names = Counter[str]()
    for document in documents:
        name = _name(document)
        path = state.history / (f"{name}-{names[name]}.json" if names[name] else f"{name}.json")
        names[name] += 1
        if _read(path) != document:
            path.parent.mkdir(exist_ok=True)
            write_json(path, document)


def load_history(engine: Engine, state: State) -> list[str]:
    """Fill a database that has no suspicions from the documents; why some could not be used.

    Numbers stay as they were, as people know events by them. Changes nothing where the database
    has suspicions.
    """
    refused: list[str] = []
    with begin_writing(engine) as session:
        if session.scalar(select(func.count()).select_from(SuspicionRow)):
            return []
        known = set(session.scalars(select(DuelRun.id)))
        for path in sorted(state.history.glob("*.json")):
            if reason := _load(session, path, known):
                refused.append(f"{path}: {reason}")
        session.flush()
        for rows in _TABLES:
            continue_numbers(session.connection(), Base.metadata.tables[rows.__tablename__])
    return refused


def _load(session: Session, path: Path, known: set[str]) -> str | None:
    """Add the rows of a document; why it can't be used."""
    try:
        document = read_storable(path)
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        return f"wanted a document of schema {_SCHEMA}, but it is damaged or another; remove it"
    try:
        rows = [_decode(SuspicionRow, document["suspicion"])]
        rows += [_decode(EventRow, document["event"])] if document["event"] else []
        rows += [_decode(EventChange, each) for each in document["changes"]]
        missing = {document["suspicion"][each] for each in _RUNS} - known
    except (KeyError, TypeError, ValueError) as error:
        return f"wanted a suspicion with its event, but {type(error).__name__}: {error}; remove it"
    if missing:
        return f"it rests on the duel runs {', '.join(sorted(missing))}, which are not there"
    try:
        with session.begin_nested():
            return _add(session, rows)
    except (IntegrityError, DataError) as error:
        return f"wanted rows that fit together, but {str(error.orig)[:200]}; remove it"


def _add(session: Session, rows: Sequence[Base]) -> str | None:
    """Add the rows, unless the database has others of their numbers; which one."""
    for row in rows:
        identity = row.id  # type: ignore[attr-defined]
        if session.get(type(row), identity) is not None:
            return f"{type(row).__tablename__} {identity} is that of another document; remove one"
    for row in rows:
        session.add(row)
        session.flush()
    return None


def _describe(
    row: SuspicionRow, event: EventRow | None, changes: Mapping[int, list[EventChange]]
) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "suspicion": _encode(row),
        "event": _encode(event) if event else None,
        "changes": [_encode(each) for each in changes.get(event.id, [])] if event else [],
    }


def _name(document: Mapping[str, Any]) -> str:
    """A document's name, from its series and the time when it was opened: a new database numbers
    from 1 again. Suspicions of a series that were opened in one night share it."""
    row = document["suspicion"]
    changing = {*_RUNS, "id", "trigger", "since", "ratio", "low", "high", "reason", "state"}
    lasting = {key: row[key] for key in row if key not in changing | {"finding", "updated_at"}}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _encode(row: Base) -> dict[str, Any]:
    values = {each.key: getattr(row, each.key) for each in row.__table__.columns}
    return {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in values.items()
    }


def _decode(table: type[Base], values: Mapping[str, Any]) -> Base:
    columns = {each.key: each for each in table.__table__.columns}
    return table(
        **{
            key: datetime.fromisoformat(values[key])
            if isinstance(columns[key].type, UtcDateTime) and values[key] is not None
            else values[key]
            for key in columns
        }
    )
