"""Reads columns of the tables into a pandas DataFrame, with the same types when it is empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import Boolean, ColumnElement, Engine, Float, Integer, Select, String, select
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.types import TypeEngine

from benchcore.protocol import CALIBRATION_TRACK
from benchcore.store.metrics import IN_COLUMNS
from benchcore.store.models import Base, DuelRun
from benchcore.store.utc_datetime import UtcDateTime

CASE = (
    DuelRun.campaign,
    DuelRun.id.label("duel_run"),
    *(DuelRun.started_at, DuelRun.workload, DuelRun.case_name, DuelRun.use_case),
    *(DuelRun.batch, DuelRun.precision, DuelRun.track),
)
OLDEST_FIRST = (DuelRun.started_at, DuelRun.id)


@dataclass(frozen=True)
class Runs:
    """Some duel runs, of whatever campaign."""

    ids: Collection[str]


Campaigns = str | Sequence[str] | None
"""One campaign, several, or (None) all."""
_MAY_BE_MISSING = {
    *IN_COLUMNS,
    *("steps_per_block", "compilations_in_blocks", "cache_hits", "compilation"),
    "shortest_block_ns",
    *("clock_resolution_ns", "num_degraded", "seed"),
}


def columns_of(table: type[Base], *names: str) -> list[InstrumentedAttribute[Any]]:
    """The columns of a table by their names."""
    return [getattr(table, name) for name in names]


def select_columns(
    *columns: InstrumentedAttribute[Any] | ColumnElement[Any] | type[Base],
) -> Select[Any]:
    """A query for columns of the duel runs and of what is joined to them."""
    return select(*columns).select_from(DuelRun)


def of_campaigns(query: Select[Any], campaign: Campaigns | Runs) -> Select[Any]:
    """The query, of the duel runs of these campaigns only, or of these."""
    if campaign is None:
        return query
    if isinstance(campaign, Runs):
        return query.where(DuelRun.id.in_(campaign.ids))
    if isinstance(campaign, str):
        return query.where(DuelRun.campaign == campaign)
    return query.where(DuelRun.campaign.in_(campaign))


def read_frame(engine: Engine, query: Select[Any], campaign: Campaigns | Runs) -> pd.DataFrame:
    """The rows of a query, of these campaigns or duel runs."""
    query = of_campaigns(query, campaign)
    columns = {each["name"]: each["type"] for each in query.column_descriptions}
    with engine.connect() as connection:  # a session makes its own rows of them first
        rows = connection.execute(query).all()
    # The types come from the tables, so that an empty frame has the same as a full one.
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {
            name: pd.Series(of_one, dtype=_column_type(name, kind))  # type: ignore[call-overload]
            for (name, kind), of_one in zip(columns.items(), values, strict=True)
        }
    )


def _column_type(name: str, kind: TypeEngine[Any]) -> str:
    if isinstance(kind, Boolean):
        return "bool"
    if isinstance(kind, Integer):
        return "float64" if name in _MAY_BE_MISSING else "int64"
    if isinstance(kind, Float):
        return "float64"
    if isinstance(kind, UtcDateTime):
        return "datetime64[us, UTC]"
    return "str" if isinstance(kind, String) else "object"


def list_values(frame: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """The values of these columns, row by row. A column of texts is made objects first: to iterate
    over pandas' own texts takes ten times as long."""
    return zip(*(frame[name].astype("object").tolist() for name in names), strict=True)


def drop_calibration_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a frame with the column `track`, without those of calibration runs."""
    return frame.loc[frame["track"] != CALIBRATION_TRACK].reset_index(drop=True)
