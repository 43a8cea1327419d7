"""Ingests documents as a night does; only the checks that a test names fail. Suspicions of such
histories, and what confirms them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from result_documents import spool_document
from sqlalchemy.orm import Session

from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import SuspicionRow
from benchcore.store.records import ContenderRecord, FailedCheck, SuspicionRecord
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.series import SeriesKey
from benchcore.verdict.samples import Judgement

MOVED = Judgement(verdict="different", log_ratio=0.06, low=0.05, high=0.07, p=1e-4, reason="")
FOUND = Finding(
    num_starts=5,
    change=MOVED,
    a=MOVED,
    b=None,
    control=MOVED,
    level=0.2,
    verdict="confirmed",
    culprit="a",
    reason="said so",
)
"""Fresh starts show that side a takes 6 % longer."""
NAMES = {"a": "jax", "b": "torch"}
"""The sides of a finding, by framework."""


def make_finding(verdict: str = "confirmed", culprit: str = "a") -> Finding:
    """`FOUND` with another verdict or culprit."""
    return replace(FOUND, verdict=verdict, culprit=culprit)  # type: ignore[arg-type]


def make_side(framework: str, version: str, key: str, **settings: str) -> ContenderRecord:
    """A contender of a suspicion, whose environment has this `key`."""
    arm = {"jax": "jax-jit", "torch": "torch-eager"}[framework]
    return ContenderRecord(
        name=f"{arm}-{version}",
        arm=arm,
        role="pinned",
        framework=framework,
        version=version,
        settings=settings,
        environment_key=key,
        python_version="3.13.0",
    )


def make_suspicion(*sides: ContenderRecord, **of_series: Any) -> SuspicionRecord:
    """That a speedup rose by 0.1 in a night. The `sides` are JAX's old and new one, then torch's;
    the fields `of_series` are those of its key."""
    a_old, a_new, b_old, b_new = sides
    return SuspicionRecord(
        id=7,
        key=SeriesKey(track="default", a_arm="jax-jit", b_arm="torch-eager", **of_series),
        trigger="shift",
        device="cpu",
        device_model="AMD EPYC",
        site="local",
        campaign="night-20",
        since=date(2026, 5, 3),
        levels=HistoryLevels(before=0.1, after=0.2, a="jax", b="torch"),
        a_old=a_old,
        a_new=a_new,
        b_old=b_old,
        b_new=b_new,
    )


def store_history(
    engine: Engine, state: State, documents: Sequence[dict[str, Any]], wrong: Sequence[int] = ()
) -> None:
    """Spool, ingest, check and judge the documents of one campaign; some are `wrong`."""
    for document in documents:
        spool_document(state.spool, document)
    ingest_spool(engine, state)
    campaign = documents[0]["campaign"]
    rest = {"contender": None, "other": None, "suite": "s", "expectation": "e", "reason": "wrong"}
    marks = [FailedCheck(duel_run=documents[each]["duel_run"], **rest) for each in wrong]
    replace_failed_checks(engine, campaign, marks)
    judge_campaign(engine, campaign)


def open_history(
    state: State, documents: Sequence[dict[str, Any]], wrong: Sequence[int] = ()
) -> Engine:
    """The state folder's own database with these documents; close it with `dispose`."""
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    store_history(engine, state, documents, wrong)
    return engine


def add_suspicion(engine: Engine, duel_run: str, **of_series: str) -> None:
    """An open suspicion that rests on this duel run alone; `of_series` are fields of its key."""
    night, runs = datetime(2026, 1, 2, tzinfo=UTC), ("before_run", "since_run", "after_run")
    named = ("workload", "case_name", "track", "a_arm", "b_arm", "device_fingerprint", "metric")
    with Session(engine) as session, session.begin():
        session.add(
            SuspicionRow(
                **{**dict.fromkeys(named, "x"), **of_series},
                **dict.fromkeys(runs, duel_run),
                **dict.fromkeys(("since", "opened_at", "updated_at"), night),
                trigger="shift",
                state="open",
                ratio=1.1,
                reason="",
            )
        )
