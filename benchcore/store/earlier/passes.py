"""Finds the passes of earlier nights that still hold, so that they are measured once a week."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.protocol import EarlierPasses, describe_conditions
from benchcore.store.models import ContenderRun, DuelRun, StartRun

HOLD = timedelta(days=6, hours=12)
"""Passes of a nightly duel are measured again in the seventh night."""
_NOT_MEASURED = "failed_passes"


def read_earlier_passes(
    engine: Engine, hashes: Collection[str], now: datetime
) -> dict[str, tuple[EarlierPasses, ...]]:
    """The duel runs of the last week that measured the passes of each of their contenders, by duel
    hash, newest first."""
    query = (
        select(DuelRun)
        .where(
            DuelRun.duel_hash.in_(hashes),
            DuelRun.started_at >= now - HOLD,
            DuelRun.passes_of.is_(None),
        )
        .order_by(DuelRun.started_at.desc(), DuelRun.id)
    )
    found = defaultdict[str, list[EarlierPasses]](list)
    with Session(engine) as session:
        duels = list(session.scalars(query))
        environments = _read_measured(session, [each.id for each in duels])
        for each in duels:
            if each.id in environments:
                found[each.duel_hash].append(_describe(each, environments[each.id]))
    return {key: tuple(each) for key, each in found.items()}


def _describe(duel: DuelRun, environments: dict[str, str]) -> EarlierPasses:
    return EarlierPasses(
        duel_run=duel.id,
        campaign=duel.campaign,
        at=duel.started_at.isoformat(),
        snapshot=duel.snapshot,
        environments=environments,
        device=describe_conditions(duel.device),
    )


def _read_measured(session: Session, runs: Collection[str]) -> dict[str, dict[str, str]]:
    """Environments by contender, of the duel runs in which each contender's passes succeeded."""
    memory = select(StartRun.duel_run, StartRun.contender).where(
        StartRun.duel_run.in_(runs), StartRun.process_peak_bytes.is_not(None)
    )
    measured = {tuple(row) for row in session.execute(memory)}
    found = defaultdict[str, dict[str, str]](dict)
    lacking = set[str]()
    query = select(ContenderRun).where(ContenderRun.duel_run.in_(runs))
    for each in session.scalars(query):
        found[each.duel_run][each.name] = each.environment_key
        is_right = each.status == "ok" and not each.effective.get(_NOT_MEASURED)
        if (each.duel_run, each.name) not in measured or not is_right:
            lacking.add(each.duel_run)
    return {run: of_run for run, of_run in found.items() if run not in lacking}
