"""Duel runs that lack rows of their documents, as a crash or a manual change may leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from benchcore.store.models import ContenderRun, DuelRun, Equivalence, StartRun


@dataclass(frozen=True)
class Incomplete:
    """A duel run, the number of rows that its document has besides it, and of those there are."""

    duel_run: str
    wanted: int
    found: int


def list_incomplete(connection: Connection, runs: Sequence[str] | None = None) -> list[Incomplete]:
    """Duel runs without all rows of contenders, starts and equivalence: of these, or of all."""
    found: Counter[str] = Counter()
    for table in (ContenderRun, StartRun, Equivalence):
        counts = select(table.duel_run, func.count()).group_by(table.duel_run)
        if runs is not None:
            counts = counts.where(table.duel_run.in_(runs))
        for run, number in connection.execute(counts):
            found[run] += number
    parts = select(DuelRun.id, DuelRun.num_parts)
    wanted = connection.execute(parts if runs is None else parts.where(DuelRun.id.in_(runs)))
    return [Incomplete(run, parts, found[run]) for run, parts in wanted if found[run] != parts]
