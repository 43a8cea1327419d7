"""Fills a database of the made-up year with copies of a machine's year, as other machines' years.

What a copy holds is what ingest and judging would store, but for its numbers: they are those of the
year that is copied. It takes seconds instead of half a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, Integer, Select, and_, func, insert, literal, select

from benchcore.demo.story import DAYS
from benchcore.store.database import begin_writing
from benchcore.store.models import (
    Base,
    ContenderRun,
    DuelRun,
    Equivalence,
    EventChange,
    EventRow,
    FailedCheckRow,
    PairRatio,
    Proof,
    StartRun,
    SuspicionRow,
    UtcDateTime,
)

MOST = 256
_PARTS = (ContenderRun, StartRun, Equivalence, PairRatio, FailedCheckRow)
"""Tables whose rows belong to a duel run, in the order of their references."""
_NUMBERS = ("id", "suspicion", "event")
_NUMBERS_OF_A_COPY = 1 << 22
"""Rows of one table that a copy may have: 256 copies fit into 32 bits."""
_FIRST = 1000
"""The machine of the first copy."""


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """How the rows of a copy differ: two digits in their ids, the end of their campaigns' names,
    their machine (None = the same), the days that they are older, and their cases."""

    number: int
    end: str
    fingerprint: str | None = None
    days: int = 0
    case: int = 0

    @property
    def is_new_machine(self) -> bool:
        """Whether it is the first copy of its machine."""
        return self.fingerprint is not None and self.days == self.case == 0


def copy_year(
    engine: Engine, fingerprint: str, number: int, machines: int, *, per_night: int = 1
) -> int:
    """Store copy `number` (below `MOST`) of all rows of a machine; its duel runs. Each of so many
    machines gets a year, then each the year before. A night of a copy has the cases of `per_night`
    copies, each under names of its own."""
    assert number < MOST, "a copy has two digits in its ids"
    group, case = divmod(number, per_night)
    year, machine = divmod(group, machines)
    copy = _Copy(
        number=number,
        end=f"-copy-{group:02x}",
        fingerprint=f"{_FIRST + machine:016x}",
        days=year * DAYS,
        case=case,
    )
    return _store(engine, copy, DuelRun.device_fingerprint == fingerprint)


def copy_night(engine: Engine, campaign: str) -> str:
    """Store a campaign again, as that of the day after; its name."""
    copy = _Copy(number=MOST - 1, end="-added", days=-1)
    _store(engine, copy, DuelRun.campaign == campaign)
    return f"{campaign}{copy.end}"


def _store(engine: Engine, copy: _Copy, wanted: ColumnElement[bool]) -> int:
    with begin_writing(engine) as session:
        count = session.scalar(select(func.count()).select_from(DuelRun).where(wanted)) or 0
        for model, belongs in _list_rows(copy, select(DuelRun.id).where(wanted)).items():
            table = Base.metadata.tables[model.__tablename__]
            values = [_change(each, copy, engine) for each in table.columns]
            query = select(*values).select_from(table).where(belongs)
            session.execute(insert(table).from_select([each.name for each in table.c], query))
    return count


def _list_rows(copy: _Copy, runs: Select[Any]) -> dict[type[Base], ColumnElement[bool]]:
    """Which rows of each table a copy of these duel runs has. A suspicion compares three of them.
    Proofs are of a machine, and hold for all its years and cases."""
    compared = (SuspicionRow.before_run, SuspicionRow.since_run, SuspicionRow.after_run)
    of_suspicions = and_(*(each.in_(runs) for each in compared))
    suspicions = select(SuspicionRow.id).where(of_suspicions)
    events = select(EventRow.id).where(EventRow.suspicion.in_(suspicions))
    rows: dict[type[Base], ColumnElement[bool]] = {
        DuelRun: DuelRun.id.in_(runs),
        **{each: each.duel_run.in_(runs) for each in _PARTS},
        SuspicionRow: of_suspicions,
        EventRow: EventRow.suspicion.in_(suspicions),
        EventChange: EventChange.event.in_(events),
    }
    if copy.is_new_machine:
        machines = runs.with_only_columns(DuelRun.device_fingerprint)
        rows[Proof] = Proof.device_fingerprint.in_(machines)
    return rows


def _change(column: ColumnElement[Any], copy: _Copy, engine: Engine) -> ColumnElement[Any]:
    name = column.name  # type: ignore[attr-defined]
    if name in _NUMBERS and isinstance(column.type, Integer):
        return column + literal((copy.number + 1) * _NUMBERS_OF_A_COPY)
    if name in ("id", "duel_run", "passes_of") or name.endswith("_run"):
        return func.substr(column, 3).concat(f"{copy.number:02x}")
    if name == "campaign":
        return column.concat(copy.end)
    if name == "device_fingerprint" and copy.fingerprint:
        return literal(copy.fingerprint)
    if name == "case_name" and copy.case:
        return column.concat(f"_v{copy.case}")
    if name == "batch" and copy.case:
        return column + literal(1000 * copy.case)
    if isinstance(column.type, UtcDateTime) and copy.days:
        return _put_back(column, copy.days, engine)
    return column


def _put_back(column: ColumnElement[Any], days: int, engine: Engine) -> ColumnElement[Any]:
    if engine.dialect.name == "sqlite":
        return func.strftime("%Y-%m-%d %H:%M:%f000", column, f"{-days:+d} days")
    return column - literal(timedelta(days=days))
