"""Reads the series of the database: what counts, of versions that roll with the releases."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Engine, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased, load_only

from benchcore.protocol import Role
from benchcore.store.conditions import read_conditions
from benchcore.store.metric_values import aggregate, read_sides
from benchcore.store.metrics import Metric, find_tracked
from benchcore.store.models import IS_NO_CALIBRATION_RUN, ContenderRun, DuelRun, PairRatio
from benchcore.verdict.history.bridges import bridge_conditions
from benchcore.verdict.history.series import (
    STEP_TIME,
    Night,
    Series,
    SeriesKey,
    link_controls,
    make_series,
)
from benchcore.verdict.history.thresholds import FEWEST_NIGHTS, SeriesScale

_ROLLING = ("newest", "system")
"""Roles whose version is whatever there is that night; pinned ones have no history."""
CONTROLS = ("previous", "control")
"""Roles of the older environment that is measured beside the newest one of its framework."""
IN_SERIES = (
    PairRatio.counts,
    IS_NO_CALIBRATION_RUN,
    PairRatio.a_role.in_(_ROLLING),
    or_(
        and_(PairRatio.kind == "cross_framework", PairRatio.b_role.in_(_ROLLING)),
        and_(PairRatio.kind == "cross_version", PairRatio.b_role.in_(CONTROLS)),
    ),
)
"""What a pair of a duel run must be to belong to a series: both frameworks' newest versions, or one
framework's newest against its control."""
_OF_CASE = ("workload", "case_name", "track", "device_fingerprint")
"""An index begins with them."""
_OF_DUEL = (*_OF_CASE, "checkpoint")
_Pair = tuple[str, str, str, str, float | None]
"""Both contenders, their environments, and the log ratio of their step times."""
_Values = Mapping[tuple[str, str, str], float]
"""By duel run, contender and metric."""


def read_series(
    engine: Engine,
    only: SeriesKey | None = None,
    metrics: Sequence[str] = (STEP_TIME,),
    *,
    campaign: str | None = None,
    days: int | None = None,
) -> list[Series]:
    """Every series of these tracked metrics, less what does not count, in order of their keys; or
    `only` one, or those of the cases and devices of a `campaign`. `days` leaves out what is older
    than the newest duel run by more. A night in which a side's metric was not measured is left out.

    An A/A duel has no series, nor has a calibration run. Raises UserError for another metric.
    """
    wanted = [find_tracked(each) for each in ((only.metric,) if only else metrics)]
    nights = defaultdict[SeriesKey, list[Night]](list)
    with Session(engine) as session:
        recent = _match_days(session, days) if days is not None else []
        condition = and_(*IN_SERIES, *_match(only), *_match_campaign(session, campaign), *recent)
        values = _read_values(session, wanted, condition)
        others = _read_controls(session, condition)
        found = list(_read_pairs(session, condition))
        runs = sorted({duel.id for duel, *_ in found})
        conditions = read_conditions(engine, runs=runs)
        for duel, ratio, a_environment, b_environment in found:
            pairs = others.get((duel.id, ratio.a_arm, ratio.b_arm), ())
            pairs = pairs if ratio.kind == "cross_framework" else ()
            for metric in wanted:
                sides = [values.get((duel.id, name, metric.key)) for name in (ratio.a, ratio.b)]
                log_ratio = _measure_ratio(metric, ratio, sides)
                if log_ratio is not None:
                    key = _key_of(duel, ratio, metric.key)
                    night = Night(
                        key=key,
                        at=duel.started_at,
                        duel_run=duel.id,
                        log_ratio=log_ratio,
                        a=ratio.a,
                        b=ratio.b,
                        a_environment=a_environment,
                        b_environment=b_environment,
                        a_version=ratio.a_version,
                        b_version=ratio.b_version,
                        conditions=conditions[duel.id],
                        controls=_measure_controls(metric, duel.id, pairs, values),
                        values=None if None in sides else cast(tuple[float, float], tuple(sides)),
                    )
                    nights[key].append(night)
    scales = {each.key: each.scale for each in wanted if each.scale is not None}
    keys = sorted(nights, key=lambda key: key.title)
    return [_connect(key, nights[key], scale) for key in keys if (scale := scales[key.metric])]


def _connect(key: SeriesKey, nights: Iterable[Night], scale: SeriesScale) -> Series:
    """One series, across conditions that changed and controls that rolled."""
    bridged, bridges = bridge_conditions(nights, scale)
    linked = bridged if key.control is None else link_controls(bridged)
    return make_series(linked, scale, bridges)


def _match(only: SeriesKey | None) -> Iterable[ColumnElement[bool]]:
    if only is None:
        return
    for name in _OF_CASE:
        yield getattr(DuelRun, name) == getattr(only, name)
    yield DuelRun.checkpoint.is_not_distinct_from(only.checkpoint)
    yield PairRatio.a_arm == only.a_arm
    yield PairRatio.b_arm == only.b_arm
    if only.control is None:
        yield PairRatio.kind == "cross_framework"
    else:
        yield PairRatio.kind == "cross_version"
        yield PairRatio.b_role == only.control


def _match_campaign(session: Session, campaign: str | None) -> Iterator[ColumnElement[bool]]:
    if campaign is None:
        return
    columns = [getattr(DuelRun, name) for name in _OF_CASE]
    query = select(*columns).where(DuelRun.campaign == campaign).distinct()
    yield tuple_(*columns).in_([tuple(row) for row in session.execute(query)])


def _match_days(session: Session, days: int) -> Iterator[ColumnElement[bool]]:
    newest = session.scalar(select(func.max(DuelRun.started_at)))
    if newest is not None:
        yield DuelRun.started_at >= newest - timedelta(days=days)


def _read_pairs(session: Session, condition: ColumnElement[bool]) -> Iterable[Any]:
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    query = (
        select(DuelRun, PairRatio, one.environment_key, other.environment_key)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .join(one, and_(one.duel_run == DuelRun.id, one.name == PairRatio.a))
        .join(other, and_(other.duel_run == DuelRun.id, other.name == PairRatio.b))
        .where(condition)
        .options(
            load_only(*(getattr(DuelRun, name) for name in _DUEL_COLUMNS), raiseload=True),
            load_only(*(getattr(PairRatio, name) for name in _PAIR_COLUMNS), raiseload=True),
        )
    )
    return session.execute(query)


_DUEL_COLUMNS = ("id", "started_at", *_OF_DUEL)
_PAIR_COLUMNS = (
    *("duel_run", "a", "b", "kind", "a_arm", "b_arm", "a_version", "b_version", "b_role"),
    "log_ratio",
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
            PairRatio.kind == "cross_framework",
            or_(PairRatio.a_role.in_(CONTROLS), PairRatio.b_role.in_(CONTROLS)),
            PairRatio.duel_run.in_(runs.where(condition)),
        )
    )
    found = defaultdict[tuple[str, str, str], list[_Pair]](list)
    for duel_run, a_arm, b_arm, *pair in session.execute(query):
        found[duel_run, a_arm, b_arm].append(cast(_Pair, tuple(pair)))
    return found


def _measure_controls(
    metric: Metric, duel_run: str, pairs: Iterable[_Pair], values: _Values
) -> dict[tuple[str, str], float]:
    """The log ratio of these pairs of a duel run, by their environments."""
    found: dict[tuple[str, str], float] = {}
    for a, b, a_environment, b_environment, of_step in pairs:
        log_ratio = of_step
        if metric.key != STEP_TIME:
            sides = [values.get((duel_run, name, metric.key)) for name in (a, b)]
            log_ratio = _measure_amounts(metric, sides)
        if log_ratio is not None:
            found[a_environment, b_environment] = log_ratio
    return found


def _key_of(duel: DuelRun, ratio: PairRatio, metric: str) -> SeriesKey:
    control = None if ratio.kind == "cross_framework" else cast(Role, ratio.b_role)
    return SeriesKey(
        **{name: getattr(duel, name) for name in _OF_DUEL},
        a_arm=ratio.a_arm,
        b_arm=ratio.b_arm,
        metric=metric,
        control=control,
    )


def _measure_ratio(metric: Metric, ratio: PairRatio, sides: Sequence[float | None]) -> float | None:
    if metric.key == STEP_TIME:
        assert ratio.log_ratio is not None, "what counts has a ratio"
        return ratio.log_ratio
    return _measure_amounts(metric, sides)


def _measure_amounts(metric: Metric, sides: Sequence[float | None]) -> float | None:
    a, b = sides
    return None if a is None or b is None else metric.log_ratio(a, b)


def _read_values(
    session: Session, metrics: Sequence[Metric], condition: ColumnElement[bool]
) -> _Values:
    return {
        (*contender, metric.key): value
        for contender, of_metrics in read_sides(session, metrics, condition)
        for metric in metrics
        if (value := aggregate(metric, of_metrics.get(metric.key, {}))) is not None
    }


def describe_series(series: Series) -> dict[str, Any]:
    """Its key, its number of nights, and how far each changed condition moved it."""
    bridges = [
        {
            "since": each.at.date().isoformat(),
            "ratio": None if each.log_ratio is None else math.exp(each.log_ratio),
            "applied": each.applied,
            "words": each.words,
        }
        for each in series.bridges
    ]
    key = dataclasses.asdict(series.key)
    return {**key, "nights": len(series.nights), "bridges": bridges}


def list_short(series: Sequence[Series]) -> Iterator[str]:
    """Series with too few nights: one line for the metrics of a pair that have equally few."""
    short = [each for each in series if len(each.nights) < FEWEST_NIGHTS]
    seen = set[tuple[SeriesKey, int]]()
    for each in short:
        pair = (dataclasses.replace(each.key, metric=STEP_TIME), len(each.nights))
        if pair not in seen:
            seen.add(pair)
            yield f"{each.key.title}: {len(each.nights)} nights of the {FEWEST_NIGHTS} it takes"
