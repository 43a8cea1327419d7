"""The locks of environments: which packages each installed, with hashes.

An environment's folder has its lock, too, but it is on one machine, and people remove folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from sqlalchemy import Engine, insert, select
from sqlalchemy.orm import Session

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import begin_writing, empty_database
from benchcore.store.models import EnvironmentLock

_LOCKS = "*/requirements.lock"
_FEWEST_SHOWN = 8


def ingest_locks(engine: Engine, state: State, others: Mapping[str, str] | None = None) -> None:
    """Store the locks of the state folder's environments, and `others` by their SHA-256, that the
    database lacks."""
    found = {hashlib.sha256(text.encode()).hexdigest(): text for text in _read_texts(state)}
    found |= others or {}
    with Session(engine) as session:
        known = set(session.scalars(select(EnvironmentLock.sha256)))
    for sha256 in sorted(found.keys() - known):
        with begin_writing(engine) as session:  # another process may be as far
            session.merge(EnvironmentLock(sha256=sha256, text=found[sha256]))


def empty_but_locks(engine: Engine) -> None:
    """Empty a database, but for its locks, in one transaction: those of environments that are gone
    are nowhere else."""
    locks = read_locks(engine)
    with empty_database(engine) as connection:
        if locks:
            rows = [{"sha256": sha256, "text": text} for sha256, text in locks.items()]
            connection.execute(insert(EnvironmentLock), rows)


def _read_texts(state: State) -> Iterator[str]:
    """The locks that are text and that another process does not remove meanwhile."""
    for path in sorted(state.environments.glob(_LOCKS)):
        with suppress(FileNotFoundError, UnicodeDecodeError):
            if text := path.read_text(encoding="utf-8"):
                yield text


def read_locks(engine: Engine) -> dict[str, str]:
    """The text of every lock, by its SHA-256."""
    with Session(engine) as session:
        return {each.sha256: each.text for each in session.scalars(select(EnvironmentLock))}


def read_lock(engine: Engine, sha256: str) -> str:
    """The lock whose SHA-256 begins so. Raises UserError unless there is exactly one."""
    begins = EnvironmentLock.sha256.startswith(sha256, autoescape=True)
    with Session(engine) as session:
        texts = list(session.scalars(select(EnvironmentLock.text).where(begins).limit(2)))
    if len(texts) != 1 or len(sha256) < _FEWEST_SHOWN:
        why = "with which several locks begin" if texts else "with which no lock begins"
        if len(sha256) < _FEWEST_SHOWN:
            why = "which is shorter"
        raise UserError(
            f"wanted the first {_FEWEST_SHOWN} digits or more of a lock's SHA-256, got "
            f"{sha256[:70]!r}, {why}; take `lock_sha256` from `deadheat environments --json` or "
            "from a result document"
        )
    return texts[0]
