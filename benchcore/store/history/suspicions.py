"""Stores suspicions: one open suspicion per shift, however many nights show it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Engine, Select, func, select
from sqlalchemy.orm import Session

from benchcore.errors import UserError
from benchcore.store.database import begin_writing
from benchcore.store.history.conditions import read_conditions
from benchcore.store.history.confirmed_moves import find_ratio, list_framework_moves
from benchcore.store.history.recovered_events import close_recovered
from benchcore.store.history.series import (
    KEY_COLUMNS,
    find_newest_day,
    list_cases,
    read_series,
    series_key,
)
from benchcore.store.history.unmeasured_suspicions import end_unmeasured
from benchcore.store.metrics import TRACKED, find_tracked
from benchcore.store.models import (
    ContenderRun,
    DuelRun,
    EventRow,
    StartRun,
    SuspicionRow,
)
from benchcore.store.records import ContenderRecord, SuspicionRecord
from benchcore.verdict.confirmation.event_states import BASELINES, OPEN
from benchcore.verdict.confirmation.machine_check import KNOWN_LEVEL
from benchcore.verdict.history.conditions import (
    ConditionChange,
    Conditions,
    list_condition_changes,
)
from benchcore.verdict.history.detect import Detection, detect_series
from benchcore.verdict.history.levels import SuspectedNights, is_held, measure_levels
from benchcore.verdict.history.matching import (
    UNDECIDED,
    StoredSuspicion,
    SuspicionUpdate,
    list_explained,
    list_growing,
    reconcile,
)
from benchcore.verdict.history.modes import describe_modes
from benchcore.verdict.history.series import Night, Series, SeriesKey
from benchcore.verdict.history.suspicions import (
    Priority,
    Suspicion,
    rank_by_priority,
    suspect,
)
from benchcore.verdict.history.thresholds import HISTORY_DAYS

_SIDE = tuple(field.name for field in dataclasses.fields(ContenderRecord))
_ANSWERED = ("confirmed", "refuted", "unknown")
_ENDED = ("passed", "gone")
_CASES_AT_ONCE = 20
_LISTED = (
    *("id", "state", "trigger", "ratio", "low", "high", "reason", "before_run", "since_run"),
    *("after_run", "finding"),
)


def refresh_suspicions(
    engine: Engine, series: Sequence[Series] | None = None, *, campaign: str | None = None
) -> list[Detection]:
    """Bring the stored suspicions and open events up to date with the series, as `read_recent`
    returned them (None: all of every tracked metric, or those of the cases that a `campaign`
    measured).

    Returns what each history shows. 10,000 histories of 1,000 nights take 38 s of CPU time. Without
    `series`, some cases at a time are read, so that memory does not grow with their number.
    """
    first = find_newest_day(engine) - HISTORY_DAYS
    found_of, ends = list[Detection](), dict[SeriesKey, datetime]()
    for part in _read_in_parts(engine, campaign) if series is None else [series]:
        with Session(engine) as session:
            stored = _Stored.read(session)
        histories = [(each, detect_series(each)) for each in part]
        for each, history in histories:
            _refresh(engine, stored, partial(_list_updates, each, history, first), each)
            found_of.append(history)
            ends[each.key] = each.nights[-1].at
        close_recovered(engine, histories)
    end_unmeasured(engine, ends)
    return found_of


def _refresh(
    engine: Engine,
    stored: _Stored,
    look: Callable[[_Stored], Sequence[SuspicionUpdate]],
    series: Series,
) -> None:
    rows = stored.rows.get(series.key, ())
    dates = {run: series.nights[row].at for run, row in series.list_rows().items()} if rows else {}
    were_ahead = any(dates.get(row.since_run, row.since) != row.since for row in rows)
    if were_ahead or look(stored):  # nearly all have none, and need no transaction
        with begin_writing(engine) as session:
            now = _Stored.read(session, series.key)
            for row in now.rows.get(series.key, ()):
                row.since = dates.get(row.since_run, row.since)
            for change in look(now):
                _store(session, series, change, now)


def _read_in_parts(engine: Engine, campaign: str | None) -> Iterator[list[Series]]:
    cases = list_cases(engine, campaign)
    for first in range(0, len(cases), _CASES_AT_ONCE):
        part = cases[first : first + _CASES_AT_ONCE]
        yield read_series(engine, metrics=TRACKED, cases=part, days=HISTORY_DAYS)


@dataclass(frozen=True)
class _Stored:
    """Suspicions by series; by series the day of the newest shift that a person accepted as the
    level to compare with; and the suspicions with an open event."""

    rows: Mapping[SeriesKey, Sequence[SuspicionRow]]
    baselines: Mapping[SeriesKey, int]
    open: Collection[int]

    @classmethod
    def read(cls, session: Session, key: SeriesKey | None = None) -> _Stored:
        """Read those of one series, or of all."""
        query = _of_series(key)
        accepted = query.join(EventRow, EventRow.suspicion == SuspicionRow.id)
        rows, baselines = defaultdict[SeriesKey, list[SuspicionRow]](list), dict[SeriesKey, int]()
        for row in session.scalars(query):
            rows[series_key(row)].append(row)
        for row in session.scalars(accepted.where(EventRow.state.in_(BASELINES))):
            day = row.since.date().toordinal()
            baselines[series_key(row)] = max(day, baselines.get(series_key(row), day))
        is_open = EventRow.state.in_(OPEN)
        return cls(rows, baselines, set(session.scalars(select(EventRow.suspicion).where(is_open))))


def _list_updates(
    series: Series, history: Detection, first: int, stored: _Stored
) -> list[SuspicionUpdate]:
    """What changes about a series' suspicions. What is undecided since before day `first` stays so:
    its history does not reach so far."""
    rows = stored.rows.get(series.key, ())
    nights = {run: series.nights[row] for run, row in series.list_rows().items()} if rows else {}
    known = [_known(row, nights, is_open=row.id in stored.open) for row in rows]
    known = [each for each in known if each.state not in UNDECIDED or each.number >= first]
    baseline = stored.baselines.get(series.key)
    found = suspect(series, baseline, history, list_explained(known), list_growing(known))
    return reconcile(found, known, series.nights[-1].number)


def _store(session: Session, series: Series, change: SuspicionUpdate, stored: _Stored) -> None:
    last = series.nights[-1].at
    if change.known is None:
        assert change.found is not None
        row = SuspicionRow(**dataclasses.asdict(series.key), opened_at=last)
        session.add(row)
    else:
        row = next(each for each in stored.rows[series.key] if each.id == change.known)
    _update(row, change.found, last)


def read_recent(
    engine: Engine, metrics: Sequence[str] = TRACKED, *, campaign: str | None = None
) -> list[Series]:
    """The nights of series that suspicions rest on; of the cases that a campaign measured, or
    all."""
    cases = None if campaign is None else list_cases(engine, campaign)
    return read_series(engine, metrics=metrics, cases=cases, days=HISTORY_DAYS)


def list_modes(
    series: Sequence[Series], found_of: Sequence[Detection] | None = None
) -> list[dict[str, Any]]:
    """The series whose nights alternate between two levels of T_b / T_a: `ratio` of the upper
    to the lower one, and the `share` of nights at the upper one. `found_of` are the results of
    `detect_series`, if already known."""
    if found_of is None:
        found_of = [detect_series(each) for each in series]
    return [
        {
            "series": each.key.title,
            "nights": len(each.nights),
            "device_fingerprint": each.key.device_fingerprint,
            **dataclasses.asdict(found.modes),
            "ratio": found.modes.ratio,
            "summary": describe_modes(found.modes),
        }
        for each, found in zip(series, found_of, strict=True)
        if found.modes is not None
    ]


def _of_series(key: SeriesKey | None) -> Select[tuple[SuspicionRow]]:
    """The query for the suspicions of a series; None = of all series."""
    query = select(SuspicionRow).order_by(SuspicionRow.id)
    for name in KEY_COLUMNS if key else ():
        query = query.where(getattr(SuspicionRow, name).is_not_distinct_from(getattr(key, name)))
    return query


def _known(row: SuspicionRow, nights: Mapping[str, Night], *, is_open: bool) -> StoredSuspicion:
    before, after = nights.get(row.before_run), nights.get(row.after_run)
    finding = row.finding or {}
    of_machine = finding.get("culprit") == "infrastructure"
    # An event finds its parts by the run before, so one that was replaced can't grow.
    is_whole = before is not None and before.duel_run == row.before_run
    reason = str((finding.get("machine_level") or {}).get("reason"))
    return StoredSuspicion(
        id=row.id,
        trigger=row.trigger,  # type: ignore[arg-type]
        number=row.since.date().toordinal(),
        ratio=find_ratio(row),
        state=row.state,  # type: ignore[arg-type]
        answered=row.updated_at.date().toordinal() if row.state in (*_ANSWERED, *_ENDED) else None,
        compared=None if before is None or after is None else (before.number, after.number),
        is_return=row.state == "refuted" and KNOWN_LEVEL in reason,
        may_grow=is_open
        and is_whole
        and row.state == "confirmed"
        and (of_machine or row.trigger == "drift"),
    )


def _update(row: SuspicionRow, found: Suspicion | None, at: datetime) -> None:
    row.updated_at = at
    if found is None:
        row.state = "passed"
        return
    row.state, row.since = "open", found.since.at
    row.before_run, row.since_run = found.before.duel_run, found.since.duel_run
    row.after_run = found.after.duel_run
    for name in ("trigger", "ratio", "low", "high", "reason"):
        setattr(row, name, getattr(found, name))


def list_suspicions(engine: Engine) -> list[dict[str, Any]]:
    """Every suspicion, the open ones first, of these the largest first: `ratio` is the new level of
    T_b / T_a over the old; `conditions` are those that changed between its nights."""
    with Session(engine) as session:
        rows = list(session.scalars(select(SuspicionRow).order_by(SuspicionRow.id)))
    runs = {each for row in rows for each in (row.before_run, row.after_run)}
    known = read_conditions(engine, runs=sorted(runs))
    rows.sort(key=lambda row: (row.state != "open", -abs(row.ratio - 1)))
    return [
        {
            **{name: getattr(row, name) for name in _LISTED},
            "series": series_key(row).title,
            "heading": find_tracked(row.metric).title,
            "since": row.since.date().isoformat(),
            "conditions": [dataclasses.asdict(each) for each in changed_conditions(row, known)],
            **dataclasses.asdict(series_key(row)),
        }
        for row in rows
    ]


def choose_suspicions(engine: Engine, ids: Sequence[int] = ()) -> list[int]:
    """The open suspicions, the most promising first; or those of these ids, which are undecided.

    Raises UserError for an unknown id, and for a suspicion that was answered.
    """
    known = {row["id"]: row for row in list_suspicions(engine)}
    for each in ids:
        if each not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise UserError(f"no suspicion {each}; there are {listed}; see `deadheat suspicions`")
        if known[each]["state"] not in UNDECIDED:
            raise UserError(
                f"wanted a suspicion that is open or unknown, got {each}, which is "
                f"{known[each]['state']}; see `deadheat suspicions`"
            )
    return list(ids) or rank_by_priority(_list_priorities(engine))


def _list_priorities(engine: Engine) -> list[Priority]:
    """Priorities of the open suspicions; a start is assumed to last as long as in the night after
    the change."""
    with Session(engine) as session:
        rows = list(session.scalars(select(SuspicionRow)))
        answers = Counter((row.trigger, row.state) for row in rows)
        found: list[Priority] = []
        for row in (each for each in rows if each.state == "open"):
            run = session.get_one(DuelRun, row.after_run)
            took_s = (run.ended_at - run.started_at).total_seconds()
            starts = func.count(StartRun.start_index.distinct())
            num_starts = session.scalar(select(starts).where(StartRun.duel_run == run.id))
            found.append(
                Priority(
                    id=row.id,
                    log_ratio=math.log(row.ratio),
                    num_confirmed=answers[row.trigger, "confirmed"],
                    num_answered=sum(answers[row.trigger, state] for state in _ANSWERED),
                    start_s=max(took_s / (num_starts or 1), 1.0),
                )
            )
    return found


def read_suspicion(
    engine: Engine, suspicion: int, known: Mapping[SeriesKey, Series] | None = None
) -> SuspicionRecord:
    """What a suspicion is about. Raises UserError if its nights no longer count. `known` are the
    series as `read_series` returned them, if they were read already."""
    with Session(engine) as session:
        row = session.get_one(SuspicionRow, suspicion)
        key = series_key(row)
        series = known.get(key) if known else next(iter(read_series(engine, key)), None)
        nights = {night.duel_run: night for night in series.nights} if series else {}
        rests_on = (row.before_run, row.since_run, row.after_run)
        gone = [each for each in rests_on if each not in nights]
        if series is None or gone:
            raise UserError(
                f"wanted the nights that suspicion {suspicion} rests on, but the duel runs "
                f"{', '.join(gone)} no longer count; run `deadheat suspicions` to update them"
            )
        before, after = nights[row.before_run], nights[row.after_run]
        suspected = SuspectedNights(
            trigger=row.trigger,
            before=row.before_run,
            since=row.since_run,
            after=row.after_run,
        )
        own = after.bridged - before.bridged if row.trigger == "bridge" else 0.0
        moves = list(list_framework_moves(session, row, series))
        levels = measure_levels(series, suspected, moves=moves)
        levels = levels.without_bridges(series.nights[-1].bridged, own)
        levels = levels.without_offset(before.offset)
        run = session.get_one(DuelRun, after.duel_run)
        sides = dict(_read_sides(session, before, after))
        if row.trigger == "bridge" and is_held(before, after):  # what the machine did to these
            sides |= {"a_new": sides["a_old"], "b_new": sides["b_old"]}
        elif before.b_version != after.b_version and key.control is not None:
            sides["b_new"] = sides["b_old"]  # the control rolled on: the old one is measured again
        return SuspicionRecord(
            id=suspicion,
            key=key,
            trigger=row.trigger,
            device=run.device["name"],
            device_model=run.device_model,
            site=run.site,
            campaign=run.campaign,
            attempt=_name_attempt(row),
            since=row.since.date(),
            conditions=tuple(list_condition_changes(before.conditions, after.conditions)),
            levels=dataclasses.replace(
                levels,
                a=sides["a_new"].framework,
                b=sides["b_new"].framework + (f" ({key.control})" if key.control else ""),
                noun=find_tracked(key.metric).noun,
            ),
            **sides,
        )


def _name_attempt(row: SuspicionRow) -> str:
    """A confirmation after one that ended measures new starts. One that was interrupted stored no
    finding, so that the next one resumes it."""
    earlier = (row.finding or {}).get("campaigns", ())
    return hashlib.sha256("\n".join(earlier).encode()).hexdigest()[:8] if earlier else ""


def _read_sides(
    session: Session, before: Night, after: Night
) -> Iterable[tuple[str, ContenderRecord]]:
    for when, night in (("old", before), ("new", after)):
        for side, name in (("a", night.a), ("b", night.b)):
            run = session.get_one(ContenderRun, (night.duel_run, name))
            yield f"{side}_{when}", ContenderRecord(**{each: getattr(run, each) for each in _SIDE})


def changed_conditions(row: SuspicionRow, known: Mapping[str, Conditions]) -> list[ConditionChange]:
    """The conditions that changed between a suspicion's nights; `known` by duel run."""
    return list_condition_changes(known[row.before_run], known[row.after_run])


def list_companions(engine: Engine, suspicion: int, verdicts: Mapping[int, str]) -> list[str]:
    """What else changed in the same case and night as a suspicion: other metrics, and other series
    of the same one. `verdicts` are those that are not stored yet, by suspicion."""
    with Session(engine) as session:
        row = session.get_one(SuspicionRow, suspicion)
        query = select(SuspicionRow).where(SuspicionRow.id != suspicion)
        for name in ("workload", "case_name", "track", "device_fingerprint", "since_run"):
            query = query.where(getattr(SuspicionRow, name) == getattr(row, name))
        found = [(each, verdicts.get(each.id, each.state)) for each in session.scalars(query)]
        changed = [each for each in found if each[1] in ("open", "confirmed")]
        return [f"{series_key(row).title} ({state})" for row, state in changed]
