"""What is asked of the database, and the two answers that are written back: marks and ratios."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, select, update
from sqlalchemy.orm import Session

from benchcore.cell.degraded import find_degraded
from benchcore.store.database import begin_writing
from benchcore.store.models import CheckMark, ContenderRun, DuelRun, PairRatio, StartRun
from benchcore.store.records import DuelRecord, Mark
from benchcore.store.trials import IS_TRIAL
from benchcore.verdict.ratios import Ratio, Side


def duels_to_judge(engine: Engine, campaign: str) -> list[DuelRecord]:
    """Every duel run of a campaign with its raw times and its marks, oldest first."""
    return _read_records(engine, DuelRun.campaign == campaign)


def trials_to_judge(engine: Engine) -> list[DuelRecord]:
    """The same of every start of a trial, of all campaigns."""
    return _read_records(engine, IS_TRIAL)


def _read_records(engine: Engine, wanted: ColumnElement[bool]) -> list[DuelRecord]:
    query = (
        select(DuelRun.id, DuelRun.campaign, DuelRun.checked_at)
        .where(wanted)
        .order_by(DuelRun.started_at, DuelRun.id)
    )
    with Session(engine) as session:
        sides, marks = _sides(session, wanted), _marks(session, wanted)
        return [
            DuelRecord(
                duel_run=each.id,
                campaign=each.campaign,
                checked=each.checked_at is not None,
                sides=tuple(sides[each.id]),
                marks=tuple(marks[each.id]),
            )
            for each in session.execute(query)
        ]


def _sides(session: Session, wanted: ColumnElement[bool]) -> Mapping[str, list[Side]]:
    blocks = _blocks(session, wanted)
    sides = defaultdict[str, list[Side]](list)
    query = (
        select(ContenderRun)
        .join(DuelRun, ContenderRun.duel_run == DuelRun.id)
        .where(wanted)
        .order_by(ContenderRun.duel_run, ContenderRun.position)
    )
    for each in session.scalars(query):
        sides[each.duel_run].append(
            Side(
                name=each.name,
                arm=each.arm,
                framework=each.framework,
                version=each.version,
                role=each.role,
                starts=_step_times(blocks[each.duel_run, each.name]),
                degraded={
                    start: find_degraded(of_start)
                    for start, of_start in blocks[each.duel_run, each.name].items()
                },
            )
        )
    return sides


_Blocks = Mapping[int, Sequence[Mapping[str, Any]]]


def _blocks(session: Session, wanted: ColumnElement[bool]) -> Mapping[tuple[str, str], _Blocks]:
    """Of each contender of each duel run: the blocks of its starts."""
    blocks = defaultdict[tuple[str, str], dict[int, Any]](dict)
    query = (
        select(StartRun.duel_run, StartRun.contender, StartRun.start_index, StartRun.blocks)
        .join(DuelRun, StartRun.duel_run == DuelRun.id)
        .where(wanted)
    )
    for duel_run, contender, start_index, of_start in session.execute(query):
        blocks[duel_run, contender][start_index] = of_start
    return blocks


def _step_times(blocks: _Blocks) -> Mapping[int, Mapping[int, float]]:
    return {
        start: {each["round"]: each["elapsed_ns"] / each["steps"] for each in of_start}
        for start, of_start in blocks.items()
    }


def _marks(session: Session, wanted: ColumnElement[bool]) -> Mapping[str, list[Mark]]:
    marks = defaultdict[str, list[Mark]](list)
    query = (
        select(CheckMark)
        .join(DuelRun, CheckMark.duel_run == DuelRun.id)
        .where(wanted)
        .order_by(CheckMark.id)
    )
    names = [field.name for field in dataclasses.fields(Mark)]
    for each in session.scalars(query):
        marks[each.duel_run].append(Mark(**{name: getattr(each, name) for name in names}))
    return marks


def replace_marks(
    engine: Engine, campaign: str, marks: Iterable[Mark], *, checked: Collection[str] | None = None
) -> None:
    """Put new marks in place of a campaign's old ones, and remember that the duels were checked.

    `checked` names the duel runs that the checks have seen; None = all of the campaign. A duel
    run that came in while the checks ran stays unchecked, and is not judged.
    """
    now = datetime.now(UTC)
    of_campaign = select(DuelRun.id).where(DuelRun.campaign == campaign)
    with begin_writing(engine) as session:
        known = set(session.scalars(of_campaign))
        seen = known if checked is None else known & set(checked)
        session.execute(delete(CheckMark).where(CheckMark.duel_run.in_(of_campaign)))
        for mark in marks:
            if mark.duel_run not in seen:
                raise ValueError(
                    f"wanted marks on the checked duel runs of campaign {campaign!r}, got one on "
                    f"{mark.duel_run!r}; check and mark one campaign at a time"
                )
            session.add(CheckMark(**dataclasses.asdict(mark), checked_at=now))
        session.execute(update(DuelRun).where(DuelRun.id.in_(seen)).values(checked_at=now))


def replace_ratios(engine: Engine, duel_run: str, ratios: Iterable[Ratio]) -> None:
    """Put new ratios in place of a duel run's old ones."""
    now = datetime.now(UTC)
    with begin_writing(engine) as session:
        session.execute(delete(PairRatio).where(PairRatio.duel_run == duel_run))
        session.add_all(
            PairRatio(
                **{
                    **dataclasses.asdict(ratio),
                    "start_log_ratios": list(ratio.start_log_ratios),
                },
                duel_run=duel_run,
                judged_at=now,
            )
            for ratio in ratios
        )
