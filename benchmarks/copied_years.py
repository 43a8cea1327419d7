"""Fills a database of the made-up year with copies of a machine's year, as other machines' years.

What a copy holds is what ingest and judging would store, but for its numbers: they are those of the
year that is copied. It takes seconds instead of half a minute.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, func, insert, literal, select

from benchcore.demo.story import DAYS
from benchcore.store.database import begin_writing
from benchcore.store.models import (
    Base,
    ContenderRun,
    DuelRun,
    Equivalence,
    PairRatio,
    StartRun,
    UtcDateTime,
)

MOST = 256
_TABLES = (DuelRun, ContenderRun, StartRun, Equivalence, PairRatio)
"""In the order of their references."""
_FIRST = 1000
"""The machine of the first copy."""


def copy_year(engine: Engine, fingerprint: str, number: int, machines: int) -> int:
    """Store copy `number` (below `MOST`) of all rows of a machine; its duel runs. Each of so many
    machines gets a year, then each the year before."""
    assert number < MOST, "a copy has two digits in its ids"
    year, machine = divmod(number, machines)
    own = {"device_fingerprint": f"{_FIRST + machine:016x}"}
    of_machine = select(DuelRun.id).where(DuelRun.device_fingerprint == fingerprint)
    with begin_writing(engine) as session:
        for model in _TABLES:
            table = Base.metadata.tables[model.__tablename__]
            run = table.c.id if model is DuelRun else table.c.duel_run
            values = [_change(each, number, year, own, engine) for each in table.columns]
            query = select(*values).where(run.in_(of_machine))
            session.execute(insert(table).from_select([each.name for each in table.c], query))
        copied = DuelRun.device_fingerprint == own["device_fingerprint"]
        newest = select(func.count()).where(copied, DuelRun.campaign.endswith(_end(number)))
        return session.execute(newest).scalar_one()


def _end(number: int) -> str:
    return f"-copy-{number:02x}"


def _change(
    column: ColumnElement[Any], number: int, year: int, own: dict[str, str], engine: Engine
) -> ColumnElement[Any]:
    name = column.name  # type: ignore[attr-defined]
    if name in ("id", "duel_run", "passes_of"):
        return func.substr(column, 3).concat(f"{number:02x}")
    if name == "campaign":
        return column.concat(_end(number))
    if name in own:
        return literal(own[name])
    if isinstance(column.type, UtcDateTime) and year:
        return _put_back(column, year * DAYS, engine)
    return column


def _put_back(column: ColumnElement[Any], days: int, engine: Engine) -> ColumnElement[Any]:
    if engine.dialect.name == "sqlite":
        return func.strftime("%Y-%m-%d %H:%M:%f000", column, f"-{days} days")
    return column - literal(timedelta(days=days))
