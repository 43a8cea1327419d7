"""Whether the compiled program changed between the contenders of a framework that were paired."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.models import DuelRun, PairRatio, StartRun
from benchcore.verdict.programs import compare_programs


def list_programs(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """One row a pair across versions or settings: whether a runs b's program, and what differs."""
    query = (
        select(PairRatio, DuelRun.workload, DuelRun.case_name)
        .join(DuelRun, DuelRun.id == PairRatio.duel_run)
        .where(DuelRun.campaign == campaign, PairRatio.kind != "cross_framework")
        .order_by(DuelRun.started_at, PairRatio.duel_run, PairRatio.a, PairRatio.b)
    )
    profiles = (
        select(StartRun.duel_run, StartRun.contender, StartRun.profile)
        .join(DuelRun, DuelRun.id == StartRun.duel_run)
        .where(DuelRun.campaign == campaign, StartRun.profile.is_not(None))
    )
    with Session(engine) as session:
        programs = {
            (duel_run, name): profile["program"]
            for duel_run, name, profile in session.execute(profiles)
            if profile is not None
        }
        pairs = session.execute(query).all()
    rows = []
    for pair, workload, case in pairs:
        a, b = (programs.get((pair.duel_run, name)) for name in (pair.a, pair.b))
        change = compare_programs(b, a)
        said = {"same": change.same, "words": change.words}
        rows.append({"case": f"{workload} {case}", "pair": f"{pair.a} against {pair.b}", **said})
    return rows
