"""What the Guide answers: a case on a device with the arms of both sides, and when these led.

A caller that passes the times from before a night reads only newer nights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, case, func, select

from benchcore.store.history.series import ROLLING
from benchcore.store.models import IS_NO_CALIBRATION_RUN, DuelRun, PairRatio, skip_index
from benchcore.verdict.duel.physics import SENTINELS

CASE = ("workload", "case_name", "track", "device_fingerprint", "checkpoint")
ARMS = ("a_arm", "b_arm")
_INDEXED = CASE[:4]
"""The columns with which an index of duel runs begins."""
NO_FRAMEWORKS = (*SENTINELS, "noop", "digest", "faulty")
"""Workloads that measure the machine or our own code, not a framework."""
_OF_DUEL = (
    IS_NO_CALIBRATION_RUN,
    DuelRun.track.in_(("default", "tuned")),
    DuelRun.workload.not_in(NO_FRAMEWORKS),
)
WANTED = (*_OF_DUEL, PairRatio.a_role.in_(ROLLING), PairRatio.b_role.in_(ROLLING))
KIND = "cross_framework"
COUNTS = and_(PairRatio.counts, PairRatio.log_ratio.is_not(None))
A_LEADS = and_(COUNTS, PairRatio.verdict == "different", PairRatio.log_ratio > 0)
B_LEADS = and_(COUNTS, PairRatio.verdict == "different", PairRatio.log_ratio < 0)
_NEWEST = (("counted", COUNTS), ("a_led", A_LEADS), ("b_led", B_LEADS))
_TIMES = ("first", "last", *(name for name, _ in _NEWEST))
_OF_CASE = tuple(getattr(DuelRun, key) for key in CASE)
_LONG_AGO = datetime.fromisoformat("0001-01-01T00:00:00+00:00")

GIVEN = SimpleNamespace(**{key: bindparam(key) for key in CASE})
"""The case as parameters of a query."""
Times = Mapping[str, datetime | None]
Past = Mapping[str, Any]
"""The times of a group before `until`, and `num_runs`: how many duel runs its case had by then."""
_Key = tuple[tuple[Any, ...], tuple[Any, ...]]
"""The values of `CASE` and those of `ARMS`."""
_NEVER: Times = dict.fromkeys(_TIMES)


@dataclass(frozen=True, kw_only=True)
class GuideGroup:
    """One answer's pairs. `times` are those of the `first` and `last` pair, and of the newest one
    that `counted`, in which side a led (`a_led`), and in which b did; None = there is none. `past`
    is what to remember of them; None = nothing."""

    case: tuple[Any, ...]
    arms: tuple[Any, ...]
    times: Times
    past: Past | None = None

    @property
    def same(self) -> dict[str, Any]:
        """What all its pairs share."""
        return dict(zip((*CASE, *ARMS), (*self.case, *self.arms), strict=True))


def equal_case(case: Any) -> list[ColumnElement[bool]]:
    """The conditions that a duel run is of this case. Only a checkpoint may be null: to compare
    nulls PostgreSQL uses no index."""
    same = [getattr(DuelRun, key) == getattr(case, key) for key in CASE if key != "checkpoint"]
    return [*same, DuelRun.checkpoint.is_not_distinct_from(case.checkpoint)]


def list_groups(
    connection: Connection,
    campaigns: Collection[str] | None,
    remembered: Iterable[Mapping[str, Any]] | None = None,
) -> list[GuideGroup]:
    """All groups, or those of the cases that these campaigns measured. `remembered` are rows with a
    group's columns and its `past`. With them the groups have a `past`, too, and of these rows'
    cases only newer nights are read."""
    if campaigns is None:
        return _collect(connection.execute(_select_groups(DuelRun).where(PairRatio.kind == KIND)))
    if remembered is None:
        return _collect(_read_whole(connection, campaigns))
    begins = select(func.min(DuelRun.started_at)).where(DuelRun.campaign.in_(campaigns))
    begun = connection.scalars(begins.group_by(DuelRun.campaign)).all()
    if not begun:
        return []
    until = max(begun)
    if known := _index(remembered, before=min(begun)):
        cases = connection.execute(_select_cases(campaigns)).all()
        parts = (_read_newer(connection, tuple(case), known, until) for case in cases)
        groups = _sort(group for part in parts for group in part)
    else:
        groups = _collect(_read_whole(connection, campaigns, until), until)
        counts = _count_runs(connection, campaigns, until)
        groups = [replace(each, past=_remember(each.past, counts, each.case)) for each in groups]
    if _has_unchecked(connection, campaigns):  # these may still become pairs of earlier nights
        return [replace(each, past=None) for each in groups]
    return groups


def _select_cases(campaigns: Collection[str]) -> Select[Any]:
    return select(*_OF_CASE).where(DuelRun.campaign.in_(campaigns), *_OF_DUEL).distinct()


def _select_groups(
    source: Any, until: Any = None, case_keys: Iterable[Any] = _OF_CASE
) -> Select[Any]:
    """With `until` each group is in two parts: before it, and since then (`is_new`)."""
    columns = [*case_keys, *(getattr(PairRatio, key) for key in ARMS)]
    newest = [func.max(case((which, DuelRun.started_at))).label(name) for name, which in _NEWEST]
    ends = (func.min(DuelRun.started_at).label("first"), func.max(DuelRun.started_at).label("last"))
    part = [] if until is None else [(DuelRun.started_at >= until).label("is_new")]
    query = select(*columns, *part, *ends, *newest).select_from(source)
    query = query.join(PairRatio, PairRatio.duel_run == DuelRun.id).where(*WANTED)
    return query.group_by(*columns, *(each.name for each in part))


def _read_whole(
    connection: Connection, campaigns: Collection[str], until: datetime | None = None
) -> Iterable[Row[Any]]:
    """Read the nights of these campaigns' cases with one query. It groups by numbers of the cases,
    as sorting many rows by a case's texts takes longer."""
    found = _select_cases(campaigns).subquery("wanted_keys")
    number = func.row_number().over(order_by=[*found.c]).label("number")
    cases = select(*found.c, number).cte("wanted_cases")
    source = cases.join(DuelRun, and_(*equal_case(cases.c)))
    groups = _select_groups(source, until, [cases.c.number])
    groups = groups.where(skip_index(PairRatio.kind) == KIND).subquery("wanted_groups")
    columns = [each for each in groups.c if each.name != "number"]
    query = select(*(cases.c[key] for key in CASE), *columns)
    return connection.execute(query.join_from(cases, groups, groups.c.number == cases.c.number))


def _collect(rows: Iterable[Row[Any]], until: datetime | None = None) -> list[GuideGroup]:
    """The groups of rows. With `until` their `past` are the times before it."""
    found = defaultdict[_Key, list[Times]](list)
    before = dict[_Key, Times]()
    for row in rows:
        key = (tuple(row[: len(CASE)]), tuple(row[len(CASE) : len(CASE) + len(ARMS)]))
        times = {name: getattr(row, name) for name in _TIMES}
        found[key].append(times)
        if until is not None and not row.is_new:
            before[key] = times
    return _sort(
        GuideGroup(
            case=key[0],
            arms=key[1],
            times=_join(parts),
            past=None if until is None else {**before.get(key, _NEVER), "until": until},
        )
        for key, parts in found.items()
    )


def _join(parts: Iterable[Times]) -> Times:
    """The first time of all, and the newest of each kind."""
    known = {name: [at for each in parts if (at := each[name])] for name in _TIMES}
    return {name: (min if name == "first" else max)(known[name], default=None) for name in _TIMES}


def _sort(groups: Iterable[GuideGroup]) -> list[GuideGroup]:
    """The groups in the order of their columns."""
    return sorted(groups, key=lambda each: (*(value or "" for value in each.case), each.arms))


def _index(
    rows: Iterable[Mapping[str, Any]], before: datetime
) -> dict[tuple[Any, ...], dict[_Key, Past]]:
    """What is remembered of the groups by case, where that ends `before` the new nights."""
    found = defaultdict[tuple[Any, ...], dict[_Key, Past]](dict)
    for row in rows:
        past: Past | None = row.get("past")
        if past is not None and past["until"] <= before:
            key = (tuple(row[each] for each in CASE), tuple(row[each] for each in ARMS))
            found[key[0]][key] = past
    return found


def _read_newer(
    connection: Connection,
    case: tuple[Any, ...],
    known: Mapping[tuple[Any, ...], Mapping[_Key, Past]],
    until: datetime,
) -> list[GuideGroup]:
    """The groups of one case, from what is remembered of it and the nights since. All nights are
    read if nothing is remembered, or if earlier nights were stored since."""
    given = dict(zip(CASE, case, strict=True))
    past = known.get(case, {})
    start = next((each["until"] for each in past.values()), _LONG_AGO)
    indexed = {key: given[key] for key in _INDEXED}
    counted = connection.execute(_COUNTED, {**indexed, "start": start, "end": until}).one()
    if any(each["num_runs"] != counted.num_before for each in past.values()):
        start, past = _LONG_AGO, {}
    rows = connection.execute(_SINCE, {**given, "start": start, "until": until})
    newer = {(each.case, each.arms): each for each in _collect(rows, until)}
    groups = list[GuideGroup]()
    for key in {**past, **newer}:
        old, new = past.get(key, _NEVER), newer.get(key)
        own = (_NEVER, _NEVER) if new is None else (new.past or _NEVER, new.times)
        times = {"until": until, "num_runs": counted.num_runs, **_join([old, own[0]])}
        groups.append(GuideGroup(case=key[0], arms=key[1], times=_join([old, own[1]]), past=times))
    return groups


def _count_runs(
    connection: Connection, campaigns: Collection[str], until: datetime
) -> Mapping[tuple[Any, ...], int]:
    """By case and device how many duel runs began before `until`."""
    columns = [getattr(DuelRun, key) for key in _INDEXED]
    cases = select(*columns).where(DuelRun.campaign.in_(campaigns)).distinct().cte("wanted_cases")
    same = and_(*(getattr(DuelRun, key) == getattr(cases.c, key) for key in _INDEXED))
    query = select(*columns, func.count()).select_from(cases.join(DuelRun, same))
    rows = connection.execute(query.where(DuelRun.started_at < until).group_by(*columns))
    return {tuple(row[:-1]): row[-1] for row in rows}


def _remember(
    past: Past | None, counts: Mapping[tuple[Any, ...], int], case: tuple[Any, ...]
) -> Past:
    return {**(past or {}), "num_runs": counts.get(case[: len(_INDEXED)], 0)}


def _has_unchecked(connection: Connection, campaigns: Collection[str]) -> bool:
    """Whether other campaigns have duel runs that were not judged yet."""
    query = select(DuelRun.id).where(DuelRun.checked_at.is_(None))
    return connection.scalar(query.where(DuelRun.campaign.not_in(campaigns)).limit(1)) is not None


# Made once: to make a query takes longer than to run it.
_SINCE = _select_groups(DuelRun, bindparam("until")).where(
    *equal_case(GIVEN),
    DuelRun.started_at >= bindparam("start"),
    skip_index(PairRatio.kind) == KIND,
)
_COUNTED = select(
    func.count(case((DuelRun.started_at < bindparam("start"), 1))).label("num_before"),
    func.count().label("num_runs"),
).where(
    *(getattr(DuelRun, key) == getattr(GIVEN, key) for key in _INDEXED),
    DuelRun.started_at < bindparam("end"),
)
"""How many duel runs of a case began before `start`, and before `end`: read from an index alone."""
