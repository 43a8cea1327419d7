"""Store and read proofs that two environments compute the same."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, and_, delete, func, select
from sqlalchemy.orm import Session

from benchcore.state import State
from benchcore.store.database import begin_writing
from benchcore.store.incoming.documents import (
    describe_other_schema,
    find_schema_problems,
    read_storable,
)
from benchcore.store.models import DuelRun, Proof

_SHARED = ("workload", "use_case", "precision", "snapshot", "device_fingerprint")
OF_DUEL = and_(
    *(getattr(Proof, key) == getattr(DuelRun, key) for key in _SHARED),
    Proof.checkpoint.is_not_distinct_from(DuelRun.checkpoint),
)
"""Whether a proof holds for a duel run's kind of case, weights, device and measuring code."""


@dataclass(frozen=True, kw_only=True)
class ProofScope:
    """What a proof holds for, in addition to its pair of environments and use case."""

    workload: str
    precision: str
    checkpoint: str | None
    """None = seeded weights: a proof with one's weights does not hold for another's."""
    snapshot: str
    device_fingerprint: str


_LATE = timedelta(days=7)


def ingest_proofs(engine: Engine, state: State, *, only_new: bool = False) -> list[str]:
    """Ingest every proof document that is newer than what the database has of its pairs.

    Twice changes nothing. Returns what was refused, and why; it stays where it is. `only_new`
    leaves out files that were written more than a week before the newest proof of the database, or
    before now if a wrong clock dated that one ahead.
    """
    refused = []
    late_s = _LATE.total_seconds()
    first = min(_find_newest(engine), time.time()) - late_s if only_new else 0.0
    for path in sorted(state.proofs.glob("*.json")):
        try:
            if path.stat().st_mtime < first:
                continue
            document = read_storable(path)
            if other := describe_other_schema(document, "proof"):
                refused.append(f"{path}: {other}")
                continue
            _check(document)
        except (OSError, ValueError, OverflowError, RecursionError) as error:
            refused.append(f"{path}: wanted a proof document, but {str(error)[:300]}; delete it")
            continue
        _store(engine, document)
    return refused


def _check(document: Any) -> None:
    """Raises ValueError, or OverflowError for a time that no database has."""
    if problems := [*find_schema_problems(document, "proof")]:
        raise ValueError(problems[0])
    datetime.fromisoformat(document["ended_at"]).astimezone(UTC)
    names = {each["name"] for each in document["contenders"]}
    for position, row in enumerate(document["rows"]):
        if unknown := {row["a"], row["b"]} - names:
            raise ValueError(f"$.rows[{position}]: no contender is named {min(unknown)!r:.100}")


def _find_newest(engine: Engine) -> float:
    """When the newest proof ended, in seconds since the epoch; 0 = there is none."""
    with Session(engine) as session:
        newest = session.scalar(select(func.max(Proof.proved_at)))
    return newest.timestamp() if newest is not None else 0.0


def _store(engine: Engine, document: Mapping[str, Any]) -> None:
    """A pair's rows of one use case go together: new ones take the place of older ones."""
    keys = {each["name"]: each["environment_key"] for each in document["contenders"]}
    scope = ProofScope(
        workload=document["workload"],
        precision=document["precision"],
        checkpoint=document.get("checkpoint"),
        snapshot=document["harness"]["snapshot"],
        device_fingerprint=document["device"]["fingerprint"],
    )
    of_pair = defaultdict[tuple[str, str, str], list[Mapping[str, Any]]](list)
    for row in document["rows"]:
        of_pair[row["use_case"], row["a"], row["b"]].append(row)
    proved_at = datetime.fromisoformat(document["ended_at"])
    for (use_case, a, b), rows in of_pair.items():
        named = {**asdict(scope), "use_case": use_case, "a_key": keys[a], "b_key": keys[b]}
        same = [getattr(Proof, key) == value for key, value in named.items()]
        with begin_writing(engine) as session:
            newest = session.scalars(select(Proof.proved_at).where(*same).limit(1)).first()
            if newest is not None and newest >= proved_at:
                continue
            session.execute(delete(Proof).where(*same))
            for row in rows:
                session.add(
                    Proof(
                        **{**row, **named},
                        num_seeds=document["num_seeds"],
                        proved_at=proved_at,
                    )
                )


def find_proven(
    engine: Engine, scope: ProofScope, num_seeds: int
) -> set[tuple[str, frozenset[str]]]:
    """(use case, pair of environment keys) whose every row passed, over this many seeds or more."""
    passed = defaultdict[tuple[str, frozenset[str]], list[bool]](list)
    query = select(Proof).where(*_is(scope))
    with Session(engine) as session:
        for each in session.scalars(query):
            found = passed[each.use_case, frozenset((each.a_key, each.b_key))]
            found.append(each.passed and each.num_seeds >= num_seeds)
    return {key for key, rows in passed.items() if all(rows)}


def list_proofs(engine: Engine, scope: ProofScope) -> list[dict[str, Any]]:
    """Every row of a scope, with its columns by name."""
    query = select(Proof).where(*_is(scope)).order_by(Proof.use_case, Proof.a, Proof.b, Proof.id)
    columns = [column.key for column in Proof.__table__.columns]
    with Session(engine) as session:
        return [{name: getattr(each, name) for name in columns} for each in session.scalars(query)]


def _is(scope: ProofScope) -> list[Any]:
    return [getattr(Proof, key) == value for key, value in asdict(scope).items()]
