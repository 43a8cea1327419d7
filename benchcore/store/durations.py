"""How long duels took on earlier nights: what packing goes by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.matrix import PlannedDuel
from benchcore.store.models import ContenderRun, DuelRun

DuelKind = tuple[str, str, str, str, int, tuple[str, ...]]
"""What two nights' duels have in common: workload, case, track, device, starts at least, arms."""
_NEWEST = 5
_MOST_RUNS = 5000


def describe_kind(duel: PlannedDuel) -> DuelKind:
    """The kind of a planned duel: its versions are left out, as they are new every night."""
    arms = tuple(sorted(contender.arm for contender in duel.contenders))
    return (duel.workload, duel.case, duel.track, duel.device, duel.starts, arms)


def read_durations(engine: Engine, site: str) -> Mapping[DuelKind, float]:
    """Seconds from a duel's begin to its end on this site: the median of its newest five runs."""
    newest = (
        select(DuelRun)
        .where(DuelRun.site == site, DuelRun.dataset.is_(None))
        .order_by(DuelRun.started_at.desc())
        .limit(_MOST_RUNS)
    )
    took = defaultdict[DuelKind, list[float]](list)
    with Session(engine) as session:
        runs = list(session.scalars(newest))
        arms = _read_arms(session, [run.id for run in runs])
        for run in runs:
            measured = (run.workload, run.case_name, run.track, run.device["name"])
            took[(*measured, run.num_starts, tuple(sorted(arms[run.id])))].append(
                (run.ended_at - run.started_at).total_seconds()
            )
    return {kind: median(seconds[:_NEWEST]) for kind, seconds in took.items()}


def _read_arms(session: Session, duel_runs: list[str]) -> Mapping[str, list[str]]:
    arms = defaultdict[str, list[str]](list)
    query = select(ContenderRun.duel_run, ContenderRun.arm)
    for duel_run, arm in session.execute(query.where(ContenderRun.duel_run.in_(duel_runs))):
        arms[duel_run].append(arm)
    return arms
