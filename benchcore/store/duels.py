"""Reads duel runs to judge, and writes back their failed checks and ratios."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, func, or_, select, update
from sqlalchemy.orm import Session

from benchcore.cell.measure.degraded import find_degraded
from benchcore.store.database import begin_reading, begin_writing
from benchcore.store.earlier.starts import EarlierStarts
from benchcore.store.models import (
    ContenderRun,
    DuelRun,
    EventRow,
    FailedCheckRow,
    PairRatio,
    StartRun,
    SuspicionRow,
)
from benchcore.store.records import DuelRecord, FailedCheck
from benchcore.verdict.confirmation.event_states import OPEN
from benchcore.verdict.duel.ratios import ContenderTimes, Ratio, judge_duel
from benchcore.verdict.history.matching import UNDECIDED
from benchcore.verdict.samples import EQUIVALENCE_BOUND

_OF_SIDE = ("duel_run", "name", "arm", "framework", "version", "role")
_AT_ONCE = 500
"""Campaigns of one query: SQLite limits its variables."""


def list_campaigns(engine: Engine) -> list[str]:
    """The names of the campaigns that have results, oldest first."""
    begun = func.min(DuelRun.started_at)
    query = select(DuelRun.campaign).group_by(DuelRun.campaign).order_by(begun, DuelRun.campaign)
    with Session(engine) as session:
        return list(session.scalars(query))


def find_newest_campaign(engine: Engine) -> str | None:
    """The campaign of the newest duel run; None = there is none."""
    newest = select(DuelRun.campaign).order_by(DuelRun.started_at.desc(), DuelRun.id.desc())
    with Session(engine) as session:
        return session.scalar(newest.limit(1))


def read_duels(engine: Engine, campaign: str) -> list[DuelRecord]:
    """Every duel run of a campaign with its raw times and its failed checks, oldest first."""
    with begin_reading(engine) as connection, Session(connection) as session:
        return _read_records(session, DuelRun.campaign == campaign)


def count_campaigns(engine: Engine) -> int:
    """How many `list_campaigns` has, without their order."""
    with Session(engine) as session:
        return session.scalar(select(func.count(DuelRun.campaign.distinct()))) or 0


def list_newest_campaigns(engine: Engine, most_duels: int) -> list[str]:
    """The newest of `list_campaigns` that have together at most so many duel runs; at least one, if
    there is any."""
    # The newest duel runs, one more than that, are of enough campaigns: others need no reading.
    order = (DuelRun.started_at.desc(), DuelRun.campaign.desc())
    newest = select(DuelRun.campaign).order_by(*order).limit(most_duels + 1)
    with Session(engine) as session:
        names = list(dict.fromkeys(session.scalars(newest)))
        counts = count_duels(session, names)
    totals = list(accumulate(counts[name] for name in names))
    fitting = sum(total <= most_duels for total in totals)
    return names[: max(1, fitting)][::-1]


def count_duels(session: Session, campaigns: Sequence[str]) -> dict[str, int]:
    """Number of these duel runs by campaign. A campaign without any is left out."""
    found = dict[str, int]()
    query = select(DuelRun.campaign, func.count()).group_by(DuelRun.campaign)
    for first in range(0, len(campaigns), _AT_ONCE):
        part = query.where(DuelRun.campaign.in_(campaigns[first : first + _AT_ONCE]))
        found |= dict(session.execute(part).tuples().all())
    return found


def read_duel_runs(engine: Engine, duel_runs: Collection[str]) -> list[DuelRecord]:
    """Read these duel runs, as `read_duels` does those of a campaign."""
    with begin_reading(engine) as connection, Session(connection) as session:
        return _read_records(session, DuelRun.id.in_(duel_runs))


def _read_records(session: Session, wanted: ColumnElement[bool]) -> list[DuelRecord]:
    query = (
        select(DuelRun.id, DuelRun.campaign, DuelRun.checked_at)
        .where(wanted)
        .order_by(DuelRun.started_at, DuelRun.id)
    )
    sides, failed = _read_sides(session, wanted), _read_failed_checks(session, wanted)
    return [
        DuelRecord(
            duel_run=each.id,
            campaign=each.campaign,
            checked=each.checked_at is not None,
            sides=tuple(sides[each.id]),
            failed_checks=tuple(failed[each.id]),
        )
        for each in session.execute(query)
    ]


def _read_sides(
    session: Session, wanted: ColumnElement[bool]
) -> Mapping[str, list[ContenderTimes]]:
    blocks, compilations = _read_starts(session, wanted)
    sides = defaultdict[str, list[ContenderTimes]](list)
    query = (
        select(*(getattr(ContenderRun, name) for name in _OF_SIDE))
        .join(DuelRun, ContenderRun.duel_run == DuelRun.id)
        .where(wanted)
        .order_by(ContenderRun.duel_run, ContenderRun.position)
    )
    for each in session.execute(query):
        sides[each.duel_run].append(
            ContenderTimes(
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
                compilations=compilations[each.duel_run, each.name],
            )
        )
    return sides


_Blocks = Mapping[int, Sequence[Mapping[str, Any]]]
_Contender = tuple[str, str]
"""Its duel run and its name."""


def _read_starts(
    session: Session, wanted: ColumnElement[bool]
) -> tuple[Mapping[_Contender, _Blocks], Mapping[_Contender, Mapping[int, int | None]]]:
    """Per contender of each duel run: the blocks of its starts, and their compilations."""
    blocks = defaultdict[_Contender, dict[int, Any]](dict)
    compilations = defaultdict[_Contender, dict[int, int | None]](dict)
    columns = (StartRun.start_index, StartRun.blocks, StartRun.compilation)
    query = (
        select(StartRun.duel_run, StartRun.contender, *columns)
        .join(DuelRun, StartRun.duel_run == DuelRun.id)
        .where(wanted)
    )
    for duel_run, contender, start_index, of_start, compilation in session.execute(query):
        blocks[duel_run, contender][start_index] = of_start
        compilations[duel_run, contender][start_index] = compilation
    return blocks, compilations


def _step_times(blocks: _Blocks) -> Mapping[int, Mapping[int, float]]:
    return {
        start: {each["round"]: each["elapsed_ns"] / each["steps"] for each in of_start}
        for start, of_start in blocks.items()
    }


def _read_failed_checks(
    session: Session, wanted: ColumnElement[bool]
) -> Mapping[str, list[FailedCheck]]:
    failed = defaultdict[str, list[FailedCheck]](list)
    query = (
        select(FailedCheckRow)
        .join(DuelRun, FailedCheckRow.duel_run == DuelRun.id)
        .where(wanted)
        .order_by(FailedCheckRow.id)
    )
    names = [field.name for field in dataclasses.fields(FailedCheck)]
    for each in session.scalars(query):
        failed[each.duel_run].append(FailedCheck(**{name: getattr(each, name) for name in names}))
    return failed


def replace_failed_checks(
    engine: Engine,
    campaign: str | Sequence[str],
    failed: Iterable[FailedCheck],
    *,
    checked: Collection[str] | None = None,
) -> None:
    """Replace the failed checks of one campaign or several, and record that their duels were
    checked.

    `checked` names the duel runs that the checks have seen; None = all of the campaigns. A duel
    run that was ingested while the checks ran stays unchecked, and is not judged; one that was
    removed meanwhile is skipped. Raises ValueError for a failed check of another duel run.
    """
    now = datetime.now(UTC)
    wanted = DuelRun.campaign.in_([campaign] if isinstance(campaign, str) else campaign)
    of_campaign = select(DuelRun.id).where(wanted)
    with begin_writing(engine) as session:
        known = _lock_duels(session, wanted)
        seen = known if checked is None else set(checked)
        session.execute(delete(FailedCheckRow).where(FailedCheckRow.duel_run.in_(of_campaign)))
        for each in failed:
            if each.duel_run not in seen:
                raise ValueError(
                    f"wanted failed checks of the checked duel runs of campaign {campaign!r}, got "
                    f"one of {each.duel_run!r}; check and store one campaign at a time"
                )
            if each.duel_run in known:
                session.add(FailedCheckRow(**dataclasses.asdict(each), checked_at=now))
        session.execute(update(DuelRun).where(DuelRun.id.in_(seen & known)).values(checked_at=now))


def _lock_duels(session: Session, wanted: ColumnElement[bool]) -> set[str]:
    """The duel runs that are there, and which no other process removes, checks or judges before
    this transaction ends. On SQLite it is the only one that writes."""
    found = select(DuelRun.id).where(wanted).order_by(DuelRun.id).with_for_update()
    return set(session.scalars(found))


def remove_duel(engine: Engine, duel_run: str) -> None:
    """Remove every row of a duel run that will be measured again."""
    with begin_writing(engine) as session:
        session.execute(delete(DuelRun).where(DuelRun.id == duel_run))


def replace_ratios(engine: Engine, ratios: Mapping[str, Iterable[Ratio]]) -> None:
    """Replace the ratios of these duel runs, in one transaction; those that were removed meanwhile
    have none."""
    now = datetime.now(UTC)
    with begin_writing(engine) as session:
        known = _lock_duels(session, DuelRun.id.in_(ratios))
        session.execute(delete(PairRatio).where(PairRatio.duel_run.in_(ratios)))
        rows = [
            PairRatio(
                **{
                    **dataclasses.asdict(ratio),
                    "start_log_ratios": list(ratio.start_log_ratios),
                    "start_compilations": list(ratio.start_compilations),
                },
                duel_run=duel_run,
                judged_at=now,
            )
            for duel_run, of_duel in ratios.items()
            if duel_run in known
            for ratio in of_duel
        ]
        session.bulk_save_objects(rows)  # without the bookkeeping of `add_all`


def judge_campaign(
    engine: Engine, *campaigns: str, equivalence_bound: float = EQUIVALENCE_BOUND
) -> list[Ratio]:
    """Judge every duel run of these campaigns again, and store the ratios. What another process
    ingests meanwhile is not judged.

    The duels of the same environments before it, from at least five on, inform the variance.
    """
    with begin_reading(engine) as connection, Session(connection) as session:
        earlier = EarlierStarts.read(session, campaigns)
        records = _read_records(session, DuelRun.campaign.in_(campaigns))
    ratios = dict[str, list[Ratio]]()
    for record in records:
        run = record.duel_run
        known = earlier.of(run)
        ratios[run] = judge_duel(record.sides, record.exclusions, equivalence_bound, known)
        earlier.add(run, ratios[run])
    replace_ratios(engine, ratios)
    return [ratio for of_duel in ratios.values() for ratio in of_duel]


def list_unchecked_campaigns(engine: Engine) -> list[str]:
    """Campaigns that have a duel run without checks, oldest first."""
    query = (
        select(DuelRun.campaign)
        .where(DuelRun.checked_at.is_(None))
        .group_by(DuelRun.campaign)
        .order_by(func.min(DuelRun.started_at))
    )
    with Session(engine) as session:
        return list(session.scalars(query))


def list_open_environments(engine: Engine) -> set[str]:
    """Keys of the environments that an undecided suspicion compares, or that of an open event,
    which people may bisect."""
    compared = select(SuspicionRow.before_run, SuspicionRow.since_run, SuspicionRow.after_run)
    of_events = select(EventRow.suspicion).where(EventRow.state.in_(OPEN))
    is_needed = or_(SuspicionRow.state.in_(UNDECIDED), SuspicionRow.id.in_(of_events))
    with Session(engine) as session:
        rows = session.execute(compared.where(is_needed))
        runs = {run for row in rows for run in row}
        keys = select(ContenderRun.environment_key).where(ContenderRun.duel_run.in_(runs))
        return set(session.scalars(keys))
