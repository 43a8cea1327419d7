"""Reads the series of the database: what counts, of versions that roll with the releases."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, time, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Engine, Row, and_, false, or_, select, true
from sqlalchemy.orm import Session, aliased

from benchcore.protocol import Role
from benchcore.store.history.clocks import (
    IN_ORDER,
    MOST_AHEAD,
    DatedNight,
    date_nights,
    find_ahead,
    move_into_night,
)
from benchcore.store.history.conditions import read_conditions
from benchcore.store.metric_values import Amounts, read_amounts
from benchcore.store.metrics import Metric, find_tracked
from benchcore.store.models import (
    IS_NO_CALIBRATION_RUN,
    ContenderRun,
    DuelRun,
    PairRatio,
    SuspicionRow,
    skip_index,
)
from benchcore.verdict.history.bridges import bridge_conditions
from benchcore.verdict.history.conditions import Conditions
from benchcore.verdict.history.series import (
    STEP_TIME,
    Night,
    Series,
    SeriesKey,
    link_controls,
    make_series,
)
from benchcore.verdict.history.thresholds import FEWEST_NIGHTS, SeriesScale

ROLLING = ("newest", "system")
"""Roles whose version is whatever there is that night; pinned ones have no history."""
CONTROL = "previous"
"""Role of the older environment that is measured beside the newest one of its framework."""

_KIND = skip_index(PairRatio.kind)
IN_SERIES = (
    PairRatio.counts,
    IS_NO_CALIBRATION_RUN,
    PairRatio.a_role.in_(ROLLING),
    or_(
        and_(_KIND == "cross_framework", PairRatio.b_role.in_(ROLLING)),
        and_(_KIND == "cross_version", PairRatio.b_role == CONTROL),
    ),
)
"""What a pair of a duel run must be to belong to a series: both frameworks' newest versions, or one
framework's newest against its control."""
_OF_CASE = ("workload", "case_name", "track", "device_fingerprint")
"""An index begins with them."""
_CASE_COLUMNS = [getattr(DuelRun, name) for name in _OF_CASE]
CaseOnDevice = tuple[str, str, str, str]
"""Workload, case, track and device fingerprint."""
_OF_DUEL = (*_OF_CASE, "checkpoint")
KEY_COLUMNS = tuple(each.name for each in fields(SeriesKey))
_Pair = tuple[str, str, str, str, float | None]
"""Both contenders, their environments, and the log ratio of their step times."""


def read_series(
    engine: Engine,
    only: SeriesKey | None = None,
    metrics: Sequence[str] = (STEP_TIME,),
    *,
    cases: Sequence[CaseOnDevice] | None = None,
    days: int | None = None,
) -> list[Series]:
    """Every series of these tracked metrics, less what does not count, in order of their titles; or
    `only` one, or those of the `cases`, as `list_cases` gives them. `days` leaves out what is older
    than the newest duel run by more. A night in which a side's metric was not measured is left out.

    An A/A duel has no series, nor has a calibration run. Raises UserError for another metric.
    """
    wanted = [find_tracked(each) for each in ((only.metric,) if only else metrics)]
    with Session(engine) as session:
        since = _find_first(session, days)
        if only is not None:
            cases = [cast(CaseOnDevice, tuple(getattr(only, name) for name in _OF_CASE))]
        condition = and_(*IN_SERIES, *_match(only), _match_nights(cases, since))
        amounts = read_amounts(session, wanted, condition)
        others = _read_controls(session, condition)
        rows = list(_read_pairs(session, condition))
    conditions = read_conditions(engine, runs=sorted({pair.id for pair in rows}))
    of_keys = defaultdict[SeriesKey, list[_MeasuredPair]](list)
    for pair in rows:
        key = _key_of(pair)
        controls = others.get((pair.id, pair.a_arm, pair.b_arm), ())
        measured = _MeasuredPair(
            pair=pair,
            at=pair.started_at,
            sides=(amounts.get((pair.id, pair.a), {}), amounts.get((pair.id, pair.b), {})),
            conditions=conditions[pair.id],
            controls=controls if key.control is None else (),
        )
        of_keys[key].append(measured)
    series: list[Series] = []
    for of_step_time, found in of_keys.items():
        pairs = _date_pairs(found)
        for metric in wanted:
            key = replace(of_step_time, metric=metric.key)
            if nights := [*_list_nights(key, metric, pairs, amounts)]:
                series.append(_connect(key, nights, metric.tracked_scale))
    return sorted(series, key=lambda each: each.key.title)


def series_key(row: SuspicionRow) -> SeriesKey:
    """The series that a suspicion is about."""
    return SeriesKey(**{name: getattr(row, name) for name in KEY_COLUMNS})


def list_cases(engine: Engine, campaign: str | None = None) -> list[CaseOnDevice]:
    """The cases and devices that a campaign measured, or (None) all."""
    query = select(*_CASE_COLUMNS).where(IS_NO_CALIBRATION_RUN).distinct()
    if campaign is not None:
        query = query.where(DuelRun.campaign == campaign)
    with Session(engine) as session:
        rows = session.execute(query.order_by(*_CASE_COLUMNS))
        return [cast(CaseOnDevice, tuple(row)) for row in rows]


def find_newest_day(engine: Engine) -> int:
    """The day from which history counts back, as `Night.number` has it: of the newest duel runs,
    less those of a clock that may have been wrong; 0 = there is none."""
    with Session(engine) as session:
        newest = _find_newest(session)
    return newest.date().toordinal() if newest is not None else 0


def _find_newest(session: Session) -> datetime | None:
    """The newest start that no wrong clock dated ahead."""
    query = select(DuelRun.started_at, DuelRun.ingested_at).order_by(DuelRun.started_at.desc())
    nights, begin = list[DatedNight](), datetime.max.replace(tzinfo=UTC)
    while len(nights) < IN_ORDER + MOST_AHEAD:
        found = session.execute(query.where(DuelRun.started_at < begin).limit(1)).first()
        if found is None:
            break
        nights.append(DatedNight(*found))
        begin = datetime.combine(found.started_at, time.min, found.started_at.tzinfo)
    nights.reverse()
    ahead = find_ahead(nights)
    return max((each.at for row, each in enumerate(nights) if row not in ahead), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _MeasuredPair:
    """A pair of a duel run with when it ran, both sides' amounts, what it ran under, and the duel's
    other pairs of the same arms."""

    pair: Row[Any]
    at: datetime
    sides: tuple[Mapping[str, float | None], Mapping[str, float | None]]
    conditions: Conditions
    controls: Sequence[_Pair]


def _date_pairs(pairs: Sequence[_MeasuredPair]) -> list[_MeasuredPair]:
    """The pairs in the order of time, each on the date of its night; those that a wrong clock dated
    ahead when they came."""
    ordered = sorted(pairs, key=lambda each: (each.at, each.pair.id))
    dates = date_nights([DatedNight(each.at, each.pair.ingested_at) for each in ordered])
    moved: list[_MeasuredPair] = []
    for each, at in zip(ordered, dates, strict=True):
        own = move_into_night(each.pair.campaign, at) if at == each.at else at
        moved.append(replace(each, at=own))
    return sorted(moved, key=lambda each: (each.at, each.pair.id))


def _list_nights(
    key: SeriesKey, metric: Metric, pairs: Iterable[_MeasuredPair], amounts: Amounts
) -> Iterator[Night]:
    """The nights in which both sides' metric was measured."""
    of_step = metric.key == STEP_TIME
    for each in pairs:
        pair = each.pair
        a, b = (side.get(metric.key) for side in each.sides)
        log_ratio = pair.log_ratio if of_step else _compare_amounts(metric, a, b)
        assert log_ratio is not None or not of_step, "what counts has a ratio"
        if log_ratio is not None:
            yield Night(
                key=key,
                at=each.at,
                duel_run=pair.id,
                log_ratio=log_ratio,
                a=pair.a,
                b=pair.b,
                a_environment=pair.a_environment,
                b_environment=pair.b_environment,
                a_version=pair.a_version,
                b_version=pair.b_version,
                conditions=each.conditions,
                controls=_measure_controls(metric, pair.id, each.controls, amounts),
                values=None if a is None or b is None else (a, b),
            )


def _connect(key: SeriesKey, nights: Iterable[Night], scale: SeriesScale) -> Series:
    """One series, across conditions that changed and controls that rolled."""
    bridged, bridges = bridge_conditions(nights, scale)
    linked = bridged if key.control is None else link_controls(bridged)
    return make_series(linked, scale, bridges)


def _match(only: SeriesKey | None) -> Iterable[ColumnElement[bool]]:
    """The conditions of a query for one series, besides its case and device."""
    if only is None:
        return
    yield DuelRun.checkpoint.is_not_distinct_from(only.checkpoint)
    yield skip_index(PairRatio.a_arm) == only.a_arm
    yield skip_index(PairRatio.b_arm) == only.b_arm
    if only.control is None:
        yield _KIND == "cross_framework"
    else:
        yield _KIND == "cross_version"
        yield PairRatio.b_role == only.control


def _match_nights(
    cases: Sequence[CaseOnDevice] | None, since: datetime | None
) -> ColumnElement[bool]:
    """The nights of these cases from then on, which an index finds; so what other cases and
    devices measured takes no time. None = of all, from the first on."""
    run = aliased(DuelRun)
    recent = true() if since is None else run.started_at >= since
    if cases is None:
        return true() if since is None else DuelRun.started_at >= since
    own = [
        and_(
            *(getattr(run, name) == value for name, value in zip(_OF_CASE, each, strict=True)),
            recent,
        )
        for each in cases
    ]
    return PairRatio.duel_run.in_(select(run.id).where(or_(false(), *own)))


def _find_first(session: Session, days: int | None) -> datetime | None:
    """So many days before the newest day (`find_newest_day`); None = all nights."""
    if days is None:
        return None
    newest = _find_newest(session)
    return None if newest is None else newest - timedelta(days=days)


def _read_pairs(session: Session, condition: ColumnElement[bool]) -> Iterable[Row[Any]]:
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    query = (
        select(
            *(getattr(DuelRun, name) for name in _DUEL_COLUMNS),
            *(getattr(PairRatio, name) for name in _PAIR_COLUMNS),
            one.environment_key.label("a_environment"),
            other.environment_key.label("b_environment"),
        )
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .join(one, and_(one.duel_run == DuelRun.id, one.name == PairRatio.a))
        .join(other, and_(other.duel_run == DuelRun.id, other.name == PairRatio.b))
        .where(condition)
    )
    return session.execute(query)


_DUEL_COLUMNS = ("id", "campaign", "started_at", "ingested_at", *_OF_DUEL)
_PAIR_COLUMNS = (
    *("a", "b", "kind", "a_arm", "b_arm", "a_version", "b_version", "b_role", "log_ratio"),
)


def _read_controls(
    session: Session, condition: ColumnElement[bool]
) -> Mapping[tuple[str, str, str], list[_Pair]]:
    """By duel run and arms: the pairs across frameworks with an older version in them, in the duel
    runs with such a pair."""
    runs = select(PairRatio.duel_run).join(DuelRun, DuelRun.id == PairRatio.duel_run)
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    query = (
        select(
            *(PairRatio.duel_run, PairRatio.a_arm, PairRatio.b_arm, PairRatio.a, PairRatio.b),
            *(one.environment_key, other.environment_key, PairRatio.log_ratio),
        )
        .join(one, and_(one.duel_run == PairRatio.duel_run, one.name == PairRatio.a))
        .join(other, and_(other.duel_run == PairRatio.duel_run, other.name == PairRatio.b))
        .where(
            PairRatio.counts,
            _KIND == "cross_framework",
            or_(PairRatio.a_role == CONTROL, PairRatio.b_role == CONTROL),
            PairRatio.duel_run.in_(runs.where(condition)),
        )
    )
    found = defaultdict[tuple[str, str, str], list[_Pair]](list)
    for duel_run, a_arm, b_arm, *pair in session.execute(query):
        found[duel_run, a_arm, b_arm].append(cast(_Pair, tuple(pair)))
    return found


def _measure_controls(
    metric: Metric, duel_run: str, pairs: Iterable[_Pair], amounts: Amounts
) -> dict[tuple[str, str], float]:
    """The log ratio of these pairs of a duel run, by their environments."""
    found: dict[tuple[str, str], float] = {}
    for a, b, a_environment, b_environment, of_step in pairs:
        log_ratio = of_step
        if metric.key != STEP_TIME:
            sides = (amounts.get((duel_run, name), {}).get(metric.key) for name in (a, b))
            log_ratio = _compare_amounts(metric, *sides)
        if log_ratio is not None:
            found[a_environment, b_environment] = log_ratio
    return found


def _key_of(pair: Row[Any]) -> SeriesKey:
    """The key of the pair's series of step times."""
    return SeriesKey(
        **{name: getattr(pair, name) for name in _OF_DUEL},
        a_arm=pair.a_arm,
        b_arm=pair.b_arm,
        control=None if pair.kind == "cross_framework" else cast(Role, pair.b_role),
    )


def _compare_amounts(metric: Metric, a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else metric.log_ratio(a, b)


def describe_series(series: Series) -> dict[str, Any]:
    """Its key, its number of nights, and how far each changed condition moved it."""
    bridges = [
        {
            "since": each.at.date().isoformat(),
            "ratio": None if each.log_ratio is None else math.exp(each.log_ratio),
            "applied": each.applied,
            "summary": each.summary,
        }
        for each in series.bridges
    ]
    key = asdict(series.key)
    return {**key, "nights": len(series.nights), "bridges": bridges}


def list_short(series: Sequence[Series]) -> Iterator[str]:
    """Series with too few nights: one line for the metrics of a pair that have equally few."""
    short = [each for each in series if len(each.nights) < FEWEST_NIGHTS]
    seen = set[tuple[SeriesKey, int]]()
    for each in short:
        pair = (replace(each.key, metric=STEP_TIME), len(each.nights))
        if pair not in seen:
            seen.add(pair)
            yield f"{each.key.title}: {len(each.nights)} nights, {FEWEST_NIGHTS} are needed"
