"""Ingests result documents from the spool into the database; invalid ones are set aside."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from benchcore.cell.measure.degraded import leave_out_degraded, list_unwatched
from benchcore.errors import DamagedFileError
from benchcore.state import State, hold_lock
from benchcore.store.copies.parts import list_incomplete
from benchcore.store.database import begin_writing
from benchcore.store.duels import count_duels
from benchcore.store.incoming import packs
from benchcore.store.incoming.documents import read_document, was_of_this_schema
from benchcore.store.metric_values import measure_amounts
from benchcore.store.metrics import IN_COLUMNS
from benchcore.store.models import ContenderRun, DuelRun, Equivalence, StartRun

_Row = dict[str, Any]
_PARTS = (ContenderRun, StartRun, Equivalence)
"""The tables of a document besides its duel run. Rows of later ones refer to earlier ones."""
_AT_ONCE = 500
"""Duel runs of one query: SQLite limits its variables."""
_BYTES_AT_ONCE = 4_000_000
"""Of documents that are stored together, some hundred: a commit each takes a third of the time."""
_REASON = ".reason.txt"
"""The file beside a rejected document."""


@dataclass(frozen=True)
class Rejection:
    """A rejected document: its new path and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class IngestReport:
    """The duel runs ingested now, those that were there before (also those that were healed), and
    what was set aside."""

    ingested: tuple[str, ...]
    already: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    healed: tuple[str, ...] = ()
    """Those that lacked rows of their documents."""


def ingest_spool(engine: Engine, state: State, *, only_new: bool = False) -> IngestReport:
    """Ingest every new document of the spool, some megabytes of them per transaction.

    Documents stay in the spool: the database can be rebuilt from them. A duel run that the
    database has with all its rows is not read again, so ingesting twice, or after a crash, changes
    nothing; rows that one lacks are added. Where file locks work, one ingester at a time goes
    through the spool; where they don't, each document is still taken once. A document that another
    version of Dead Heat rejected for its schema, which is this version's, is taken again.

    `only_new` skips a pack if the database has as many duel runs of its campaign, and does not
    read their rows: then a night's ingest takes no longer as nights are added and packed.
    """
    with hold_lock(state.spool / ".ingest.lock", shared_by_threads=True):
        return _ingest_spool(engine, state, only_new=only_new)


def _ingest_spool(engine: Engine, state: State, *, only_new: bool) -> IngestReport:
    ingested: list[str] = []
    healed: list[str] = []
    _take_back(state)
    already, rejected = _read_packs(engine, state, only_new=only_new)
    paths = _documents(state)
    known, incomplete = _find_known(engine, [each.stem for each in paths])
    for part in _split_by_size(paths):
        new = list[dict[str, Any]]()
        for path in part:
            there = known.get(path.stem) == path.parent.name
            if there:
                already.append(path.stem)
            if there and path.stem not in incomplete:
                continue
            try:
                document = read_document(path) if there else _read_new(path, known)
            except FileNotFoundError:
                continue  # another ingester set it aside a moment ago
            except ValueError as error:
                rejection = _set_aside(path, state.rejected, str(error))
                rejected += [rejection] if rejection else []
                continue
            if there:
                _heal(engine, document)
                healed.append(path.stem)
            else:
                new.append(document)
                known[path.stem] = path.parent.name
        stored = _insert(engine, new)
        ingested += stored
        already += [each["duel_run"] for each in new if each["duel_run"] not in stored]
    return IngestReport(tuple(ingested), tuple(already), tuple(rejected), tuple(healed))


def _split_by_size(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Parts of some megabytes."""
    part, size = list[Path](), 0
    for path in paths:
        part.append(path)
        with suppress(FileNotFoundError):  # another ingester set it aside a moment ago
            size += path.stat().st_size
        if size >= _BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _find_known(engine: Engine, runs: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """The stored ones of these duel runs, each with its campaign, and those that lack rows."""
    known, incomplete = dict[str, str](), set[str]()
    with Session(engine) as session:
        for first in range(0, len(runs), _AT_ONCE):
            part = runs[first : first + _AT_ONCE]
            query = select(DuelRun.id, DuelRun.campaign).where(DuelRun.id.in_(part))
            there = dict(session.execute(query).tuples().all())
            if there:
                found = list_incomplete(session.connection(), [*there])
                incomplete |= {each.duel_run for each in found}
            known |= there
    return known, incomplete


def _read_packs(
    engine: Engine, state: State, *, only_new: bool
) -> tuple[list[str], list[Rejection]]:
    """The duel runs of packs whose rows are all there, and the damaged packs; other packs are
    unpacked."""
    already: list[str] = []
    rejected: list[Rejection] = []
    found = sorted({*state.spool.glob(f"*/{packs.NAME}")} - {state.rejected / packs.NAME})
    counts = dict[str, int]()
    if only_new:
        with Session(engine) as session:
            counts = count_duels(session, [pack.parent.name for pack in found])
    for pack in found:
        if only_new and packs.count_packed(pack.parent) == counts.get(pack.parent.name):
            continue
        try:
            already += _unpack_new(engine, pack.parent)
        except DamagedFileError as error:
            rejection = _set_aside(pack, state.rejected, str(error))
            rejected += [rejection] if rejection else []
    return already, rejected


def _unpack_new(engine: Engine, folder: Path) -> list[str]:
    """The duel runs of a pack whose rows are all there; any other pack is unpacked instead."""
    packed = packs.list_packed(folder)
    known, incomplete = _find_known(engine, packed)
    missing = [each for each in packed if known.get(each) != folder.name or each in incomplete]
    if packed and not missing:
        return packed
    packs.unpack(folder)
    return []


def _documents(state: State) -> list[Path]:
    paths = state.spool.glob("*/*.json")
    return sorted(each for each in paths if each.parent != state.rejected)


def _read_new(path: Path, known: Mapping[str, str]) -> dict[str, Any]:
    if path.is_dir():
        raise ValueError("wanted a result document, got a folder; put the document in its place")
    if path.stem in known:
        raise ValueError(
            f"wanted a duel run that is new, got {path.stem!r}, which was ingested from campaign "
            f"{known[path.stem]!r}; give every duel run its own id"
        )
    return read_document(path)


def _insert(engine: Engine, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Store documents in one transaction, or each alone if that is refused; the duel runs, less
    those with which another ingester was faster."""
    if not documents:
        return []
    try:
        insert_documents(engine, documents)
    except (IntegrityError, DataError):
        if len(documents) > 1:
            return [run for each in documents for run in _insert(engine, [each])]
        with Session(engine) as session:
            if session.get(DuelRun, documents[0]["duel_run"]) is None:
                raise
        return []
    return [each["duel_run"] for each in documents]


def insert_documents(engine: Engine, documents: Sequence[Mapping[str, Any]]) -> None:
    """Store new, valid documents in one transaction."""
    parts = [_list_parts(each) for each in documents]
    with begin_writing(engine) as session:
        connection = session.connection()  # a session would look at every column of every row
        connection.execute(insert(DuelRun), [_duel_run(each) for each in documents])
        for table, of_documents in zip(_PARTS, zip(*parts, strict=True), strict=True):
            if rows := [row for of_document in of_documents for row in of_document]:
                connection.execute(insert(table), rows)


def _heal(engine: Engine, document: Mapping[str, Any]) -> None:
    """Add the rows that a duel run lacks. What was judged and found of it stays."""
    with begin_writing(engine) as session:
        for table, rows in zip(_PARTS, _list_parts(document), strict=True):
            for row in rows:
                session.merge(table(**row))
            session.flush()


def _list_parts(document: Mapping[str, Any]) -> tuple[list[_Row], list[_Row], list[_Row]]:
    """The rows of a document in `_PARTS`: dicts, as objects of models take half of the time."""
    run = document["duel_run"]
    on_gpu = document["allocation"]["device"]["kind"] == "gpu"
    contenders, starts = list[_Row](), list[_Row]()
    for position, each in enumerate(document["contenders"]):
        row = _contender_run(run, position, each)
        own = [_start_run(run, each["name"], start, on_gpu=on_gpu) for start in each["starts"]]
        untimed = {"cold": row["cold"], "warm": row["warm"]}
        read = [SimpleNamespace(**start) for start in own]
        contenders.append(row | {"amounts": measure_amounts(untimed, read, on_gpu=on_gpu)})
        starts += own
    return contenders, starts, [{"duel_run": run, **each} for each in document["equivalence"]]


def _count_parts(document: Mapping[str, Any]) -> int:
    """How many rows `_list_parts` gives."""
    starts = sum(len(each["starts"]) for each in document["contenders"])
    return len(document["contenders"]) + starts + len(document["equivalence"])


def _duel_run(document: Mapping[str, Any]) -> _Row:
    duel, allocation = document["duel"], document["allocation"]
    same = ("workload", "use_case", "batch", "precision", "track", "sizes", "seed")
    work = ("flops_per_step", "least_bytes_per_step")
    return dict(
        **{key: duel[key] for key in (*same, *work)},
        id=document["duel_run"],
        campaign=document["campaign"],
        schema=document["schema"],
        method=document["method"],
        duel_hash=duel["hash"],
        case_name=duel["case"],
        num_starts=duel["starts"],
        num_rounds=duel["rounds"],
        num_parts=_count_parts(document),
        stopped_by=duel.get("stopped_by"),
        dataset=duel.get("dataset"),
        checkpoint=duel.get("checkpoint"),
        passes_of=(duel.get("passes_of") or {}).get("duel_run"),
        harness_version=document["harness"]["version"],
        snapshot=document["harness"]["snapshot"],
        site=allocation["site"],
        node=allocation["node"],
        allocation_id=allocation["id"],
        slurm=allocation.get("slurm"),
        device_fingerprint=allocation["device"]["fingerprint"],
        device_model=allocation["device"]["model"],
        device=allocation["device"],
        host=allocation["host"],
        started_at=datetime.fromisoformat(allocation["started_at"]),
        ended_at=datetime.fromisoformat(allocation["ended_at"]),
        ingested_at=datetime.now(UTC),
    )


def _contender_run(duel_run: str, position: int, contender: Mapping[str, Any]) -> _Row:
    environment, failure = contender["environment"], contender["failure"] or {}
    same = ("name", "arm", "role", "framework", "version", "settings", "effective", "status")
    of_environment = ("lock_sha256", "python_version", "build", "packages")
    return dict(
        **{key: contender[key] for key in same},
        **{key: environment[key] for key in of_environment},
        **{key: failure.get(key) for key in ("stage", "reason", "traceback", "cause", "xids")},
        duel_run=duel_run,
        position=position,
        environment_key=environment["key"],
        cold=contender.get("cold"),
        warm=contender.get("warm"),
        ladder=contender.get("ladder"),
    )


def _start_run(duel_run: str, contender: str, start: Mapping[str, Any], *, on_gpu: bool) -> _Row:
    same = ("status", "caches", "stages", "warm_up", "steps_per_block", "compilations_in_blocks")
    rest = ("blocks", "latency_ns", "energy", "inputs_sha256")
    valid = leave_out_degraded(start["blocks"])
    unwatched = list_unwatched(start["blocks"], on_gpu=on_gpu)
    return dict(
        **{key: start[key] for key in (*same, *rest)},
        **{key: start["memory"].get(key) for key in IN_COLUMNS},
        measured=start.get("measured"),
        compilation=start.get("compilation", 0),
        cache_hits=start.get("cache_hits"),
        seed=start.get("seed"),
        profile=start.get("profile"),
        epochs=start.get("epochs"),
        clock_resolution_ns=start.get("clock_resolution_ns"),
        duel_run=duel_run,
        contender=contender,
        start_index=start["index"],
        started_at=datetime.fromisoformat(start["started_at"]),
        num_blocks=len(start["blocks"]),
        shortest_block_ns=min((each["elapsed_ns"] for each in start["blocks"]), default=None),
        num_degraded=len(start["blocks"]) - len(valid),
        unwatched="; ".join(f"{name}: {why}" for name, why in unwatched.items()) or None,
        median_step_ns=_median_step_ns(valid),
    )


def _median_step_ns(blocks: list[Mapping[str, Any]]) -> float | None:
    if not blocks:
        return None
    return float(statistics.median(each["elapsed_ns"] / each["steps"] for each in blocks))


def _take_back(state: State) -> None:
    """Move documents that an older version rejected, as they were of this version's schema, to
    where they were."""
    for why in sorted(state.rejected.glob(f"*.json{_REASON}")):
        reason = why.read_text(encoding="utf-8", errors="replace")
        if not was_of_this_schema(reason):
            continue
        before = Path(reason.partition(": $.schema: ")[0])
        target = state.spool / before.parent.name / before.name
        document = why.with_name(why.name.removesuffix(_REASON))
        if document.exists() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            document.rename(target)
            why.unlink()


def _set_aside(path: Path, rejected: Path, reason: str) -> Rejection | None:
    """Move a document and write the reason next to it; None if another ingester moved it."""
    rejected.mkdir(parents=True, exist_ok=True)
    target, why = _claim(path.name, rejected)
    why.write_text(f"{path}: {reason}\n", encoding="utf-8", errors="backslashreplace")
    try:
        path.rename(target)
    except FileNotFoundError:
        why.unlink()
        return None
    return Rejection(target, reason)


def _claim(name: str, rejected: Path) -> tuple[Path, Path]:
    """Reserve a free name, by creating its file of reasons exclusively; returns both paths."""
    attempt = 0
    while True:
        numbered = name if attempt == 0 else f"{name.removesuffix('.json')}.{attempt}.json"
        target, why = rejected / numbered, rejected / f"{numbered}{_REASON}"
        attempt += 1
        if target.exists():
            continue
        try:
            why.touch(exist_ok=False)
        except FileExistsError:
            continue
        return target, why
