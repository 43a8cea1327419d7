"""Duel runs that lack rows of their documents, as a crash or a careless hand may leave them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from benchcore.store.models import ContenderRun, DuelRun, Equivalence, StartRun


@dataclass(frozen=True)
class Incomplete:
    """A duel run, the number of rows that its document has besides it, and of those there are."""

    duel_run: str
    wanted: int
    found: int


def list_incomplete(connection: Connection) -> list[Incomplete]:
    """Duel runs without all rows of contenders, starts and equivalence."""
    found: Counter[str] = Counter()
    for table in (ContenderRun, StartRun, Equivalence):
        for run, number in connection.execute(
            select(table.duel_run, func.count()).group_by(table.duel_run)
        ):
            found[run] += number
    wanted = connection.execute(select(DuelRun.id, DuelRun.num_parts))
    return [Incomplete(run, parts, found[run]) for run, parts in wanted if found[run] != parts]
