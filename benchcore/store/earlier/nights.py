"""Reads what duels took on earlier nights, and how far their starts spread, to plan the next."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median, variance
from typing import Any

from sqlalchemy import Engine, Row, select
from sqlalchemy.orm import Session

from benchcore.cell.stopping import group_by_compilation
from benchcore.planning.budgets import EarlierDuels, PairSpread
from benchcore.planning.matrix import PlannedDuel
from benchcore.store.history.series import IN_SERIES
from benchcore.store.models import ContenderRun, DuelRun, PairRatio
from benchcore.verdict.starts import StartsOfDuel

DuelKind = tuple[str, str, str, str, int, tuple[str, ...]]
"""What duels of two nights have in common: workload, case, track, device, fewest starts, arms."""
_NEWEST = 5
_MOST_RUNS = 5000
_OF_RUN = (
    *(DuelRun.id, DuelRun.workload, DuelRun.case_name, DuelRun.track, DuelRun.num_starts),
    *(DuelRun.started_at, DuelRun.ended_at),
)
_FEWEST_FREEDOM = 8
"""Starts beyond the first of each night: with fewer, a spread is unknown."""
_FEWEST_WITHIN = 4
"""Starts beyond the first of each compilation: with fewer, the spread between compilations is
unknown."""


def describe_kind(duel: PlannedDuel) -> DuelKind:
    """The kind of a planned duel: its versions are left out, as they are new every night."""
    arms = tuple(sorted(contender.arm for contender in duel.contenders))
    return (duel.workload, duel.case, duel.track, duel.device, duel.limits.starts, arms)


def read_durations(engine: Engine, site: str) -> Mapping[DuelKind, float]:
    """Seconds from a duel's begin to its end on this site: the median of its newest five runs."""
    with Session(engine) as session:
        return {
            kind: median((run.ended_at - run.started_at).total_seconds() for run in runs)
            for kind, runs in _read_newest(session, site).items()
        }


def read_earlier_duels(engine: Engine, site: str) -> Mapping[DuelKind, EarlierDuels]:
    """What the newest five runs of each kind of duel on this site show of a start and of its pairs.
    Kinds with a pair whose spread is unknown are left out."""
    with Session(engine) as session:
        newest = _read_newest(session, site)
        pairs = _read_pairs(session, [run.id for runs in newest.values() for run in runs])
    found = dict[DuelKind, EarlierDuels]()
    for kind, runs in newest.items():
        starts = defaultdict[tuple[str, str, str], list[StartsOfDuel]](list)
        start_s = list[float]()
        for run in runs:
            for name, of_pair in pairs[run.id].items():
                starts[name].append(of_pair)
            if of_run := pairs[run.id].values():
                taken_s = (run.ended_at - run.started_at).total_seconds()
                start_s.append(taken_s / max(len(logs) for logs, _ in of_run))
        spreads = [_measure_spread(nights) for nights in starts.values()]
        measured = tuple(each for each in spreads if each is not None)
        if measured and len(measured) == len(spreads):
            found[kind] = EarlierDuels(start_s=median(start_s), pairs=measured)
    return found


def _read_newest(session: Session, site: str) -> Mapping[DuelKind, list[Row[Any]]]:
    """The newest five runs of each kind of duel, newest first."""
    newest = (
        select(*_OF_RUN, DuelRun.device["name"].as_string().label("device"))
        .where(DuelRun.site == site, DuelRun.dataset.is_(None))
        .order_by(DuelRun.started_at.desc())
        .limit(_MOST_RUNS)
    )
    runs = session.execute(newest).all()
    arms = defaultdict[str, list[str]](list)
    of_runs = ContenderRun.duel_run.in_([run.id for run in runs])
    for duel_run, arm in session.execute(
        select(ContenderRun.duel_run, ContenderRun.arm).where(of_runs)
    ):
        arms[duel_run].append(arm)
    found = defaultdict[DuelKind, list[Row[Any]]](list)
    for run in runs:
        measured = (run.workload, run.case_name, run.track, run.device)
        found[*measured, run.num_starts, tuple(sorted(arms[run.id]))].append(run)
    return {kind: of_kind[:_NEWEST] for kind, of_kind in found.items()}


def _read_pairs(
    session: Session, duel_runs: Sequence[str]
) -> Mapping[str, dict[tuple[str, str, str], StartsOfDuel]]:
    """By duel run, the starts of its pairs that have series, by arms and role."""
    columns = (PairRatio.a_arm, PairRatio.b_arm, PairRatio.b_role)
    query = (
        select(DuelRun.id, *columns, PairRatio.start_log_ratios, PairRatio.start_compilations)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(*IN_SERIES, DuelRun.id.in_(duel_runs))
    )
    found = defaultdict[str, dict[tuple[str, str, str], StartsOfDuel]](dict)
    for run, a_arm, b_arm, role, logs, compilations in session.execute(query):
        found[run][a_arm, b_arm, role] = (logs, compilations)
    return found


def _measure_spread(nights: Sequence[StartsOfDuel]) -> PairSpread | None:
    """By the analysis of variance of each night's starts, nested in compilations; None = too few
    starts. Where too few of them share a compilation, all is taken for the spread of starts."""
    kept = [
        (logs, group_by_compilation(logs, compilations))
        for logs, compilations in nights
        if len(logs) > 1
    ]
    if sum(len(logs) - 1 for logs, _ in kept) < _FEWEST_FREEDOM:
        return None
    within = [group for _, groups in kept for group in groups]
    of_means = [[fmean(group) for group in groups] for _, groups in kept if len(groups) > 1]
    if not of_means or sum(len(group) - 1 for group in within) < _FEWEST_WITHIN:
        return PairSpread(starts=math.sqrt(_pool([logs for logs, _ in kept])), compilations=0.0)
    of_starts = _pool(within)
    explained = of_starts * fmean(1 / len(group) for _, groups in kept for group in groups)
    beyond = max(0.0, _pool(of_means) - explained)
    return PairSpread(starts=math.sqrt(of_starts), compilations=math.sqrt(beyond))


def _pool(groups: Sequence[Sequence[float]]) -> float:
    """The variance within groups, weighted by their degrees of freedom."""
    squares = sum(variance(each) * (len(each) - 1) for each in groups if len(each) > 1)
    return squares / sum(len(each) - 1 for each in groups)
