"""Makes the database again from documents alone: rows, checks, ratios, suspicions and events."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchcore.errors import UserError
from benchcore.state import State, hold_lock
from benchcore.store.database import (
    Engine,
    database_file,
    is_database_error,
    open_database,
)
from benchcore.store.duels import judge_campaign, list_campaigns
from benchcore.store.history.history_documents import load_history, save_history
from benchcore.store.history.suspicions import refresh_suspicions
from benchcore.store.incoming import packs
from benchcore.store.incoming.environment_locks import empty_but_locks, ingest_locks, read_locks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.proofs import ingest_proofs
from data_checks.check import check_campaign

_AT_ONCE = 40
"""Campaigns that go through the suites together: Great Expectations takes a second each time,
however few the rows."""


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a database was made of, and what could not be used, each with its reason."""

    duel_runs: int
    campaigns: int
    refused: tuple[str, ...]
    kept: str | None
    """Where the database from before is."""


def rebuild_database(
    state: State, report: Callable[[str], None], folders: Sequence[Path] = ()
) -> Rebuilt:
    """Make the database again from the documents of the state folder, after taking in those of
    other `folders` (`spool/` and `proofs/`, as in `results/`). No plan is needed.

    An SQLite file takes the old one's place only once it is complete. Tables of PostgreSQL are
    emptied, except for their locks, and filled again; interrupted, another rebuild completes that.
    Raises UserError.
    """
    for folder in folders:
        _take_in(folder, state)
    locks = _save_history(state, report)
    path = database_file(state.database_url)
    if path is None:
        with _opened(state.database_url) as engine:
            empty_but_locks(engine)
            return _fill(engine, state, report, locks, kept=None)
    with hold_lock(Path(f"{path}.rebuild.lock")):
        new = path.with_name(f"{path.name}.new")
        _remove(new)
        old = path.with_name(f"{path.name}.old") if path.exists() else None
        with _opened(f"sqlite:///{new}") as engine:
            done = _fill(engine, state, report, locks, kept=str(old) if old else None)
        if old is not None:
            _move(path, old)
        _move(new, path)
    return done


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _fill(
    engine: Engine,
    state: State,
    report: Callable[[str], None],
    locks: Mapping[str, str],
    *,
    kept: str | None,
) -> Rebuilt:
    ingested = ingest_spool(engine, state)
    ingest_locks(engine, state, locks)
    refused = [f"{each.path}: {each.reason}" for each in ingested.rejected]
    refused += ingest_proofs(engine, state)
    campaigns = list_campaigns(engine)
    for begun in range(0, len(campaigns), _AT_ONCE):
        some = campaigns[begun : begun + _AT_ONCE]
        report(f"checking and judging {some[0]} ({begun + 1} of {len(campaigns)})")
        check_campaign(engine, some)
        for campaign in some:
            judge_campaign(engine, campaign)
    refused += load_history(engine, state)
    refresh_suspicions(engine)
    save_history(engine, state)
    return Rebuilt(
        duel_runs=len(ingested.ingested),
        campaigns=len(campaigns),
        refused=tuple(refused),
        kept=kept,
    )


def _save_history(state: State, report: Callable[[str], None]) -> dict[str, str]:
    """What people did goes into documents first, if the old database can still be read. Returns
    its locks: those of environments that are gone are nowhere else."""
    path = database_file(state.database_url)
    if path is not None and not path.exists():
        return {}
    try:
        with _opened(state.database_url) as engine:
            save_history(engine, state)
            return read_locks(engine)
    except Exception as error:
        if not (isinstance(error, UserError) or is_database_error(error)):
            raise
        if path is None:
            raise
        report(f"the database can't be read ({str(error)[:200]}): events come from their documents")
        return {}


def _take_in(folder: Path, state: State) -> None:
    """Copy the documents of another folder that are not here. Raises UserError if it has none."""
    documents = [*folder.glob("spool/*/*.json"), *folder.glob("proofs/*.json")]
    documents += [*folder.glob("history/*.json"), *folder.glob(f"spool/*/{packs.NAME}")]
    if not documents:
        raise UserError(
            f"wanted a folder with documents in spool/CAMPAIGN/, got {str(folder)!r}; choose a "
            "state folder or one of results/"
        )
    for document in documents:
        target = state.root / document.relative_to(folder)
        if document.name == packs.NAME:  # the folder may have packed others of the campaign
            packs.unpack(target.parent)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.part")
            shutil.copyfile(document, part)
            part.replace(target)


def _move(path: Path, target: Path) -> None:
    """Move a database, and SQLite's log of what is not in its file yet."""
    _remove(target)
    for end in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(target.with_name(target.name + end))


def _remove(path: Path) -> None:
    for end in ("-wal", "-shm", ""):
        path.with_name(path.name + end).unlink(missing_ok=True)
