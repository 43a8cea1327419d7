"""Every suspected or confirmed change with its series, its nights and its event, for pages."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, and_, select
from sqlalchemy.orm import Session, aliased

from benchcore.store.history.conditions import read_conditions
from benchcore.store.history.series import ROLLING, series_key
from benchcore.store.history.suspicions import changed_conditions
from benchcore.store.metrics import find_tracked
from benchcore.store.models import (
    DuelRun,
    EventChange,
    EventRow,
    PairRatio,
    SuspicionRow,
    skip_index,
)

_COPIED = (
    *("id", "state", "trigger", "ratio", "low", "high", "reason", "since", "finding"),
    *("before_run", "since_run", "after_run", "opened_at", "updated_at"),
)
_OF_CASE = (
    *("workload", "case_name", "use_case", "batch", "precision", "track", "device_model", "site"),
)


def list_changes(engine: Engine) -> list[dict[str, Any]]:
    """One row per suspicion, oldest first. `key` is its series; `case` describes what it is about;
    `campaign` is the night that showed it last; `versions` are (a, b) `before` and `after`;
    `event` is None until a confirmation; only an event has `conditions`, those that changed with
    it. Reads the nights of suspicions only.
    """
    after = aliased(DuelRun)
    of_case = [getattr(after, name) for name in ("campaign", *_OF_CASE)]
    query = (
        select(SuspicionRow, EventRow, *of_case, after.device["name"].as_string().label("device"))
        .join(after, after.id == SuspicionRow.after_run)
        .outerjoin(EventRow, EventRow.suspicion == SuspicionRow.id)
        .order_by(SuspicionRow.id)
    )
    with Session(engine) as session:
        rows = [(row[0], row[1], row._mapping) for row in session.execute(query)]
        confirmed = [row for row, event, _ in rows if event is not None]
        runs = {each for row in confirmed for each in (row.before_run, row.after_run)}
        known = read_conditions(engine, runs=sorted(runs))
        versions = _read_versions(session)
        history = _read_history(session)
        return [
            {
                **{name: getattr(row, name) for name in _COPIED},
                "key": series_key(row),
                "metric": find_tracked(row.metric),
                "case": {name: duel[name] for name in (*_OF_CASE, "device")},
                "campaign": duel["campaign"],
                "conditions": [] if event is None else changed_conditions(row, known),
                "versions": {
                    when: versions.get((row.id, run), ("", ""))
                    for when, run in (("before", row.before_run), ("after", row.after_run))
                },
                "event": None if event is None else _describe_event(event, history),
            }
            for row, event, duel in rows
        ]


def _describe_event(event: EventRow, history: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    names = ("id", "state", "owner", "opened_at", "updated_at")
    return {**{name: getattr(event, name) for name in names}, "history": history.get(event.id, [])}


def _read_history(session: Session) -> dict[int, list[dict[str, Any]]]:
    """What people and confirmations did to each event, oldest first."""
    found: dict[int, list[dict[str, Any]]] = {}
    for each in session.scalars(select(EventChange).order_by(EventChange.id)):
        named = {name: getattr(each, name) for name in ("at", "who", "old", "new", "note")}
        found.setdefault(each.event, []).append(named)
    return found


def _read_versions(session: Session) -> dict[tuple[int, str], tuple[str, str]]:
    """By suspicion and duel run: both sides' versions in the night before it, and in the newest."""
    found: dict[tuple[int, str], tuple[str, str]] = {}
    for run in (SuspicionRow.before_run, SuspicionRow.after_run):
        same = [
            skip_index(getattr(PairRatio, arm)) == getattr(SuspicionRow, arm)
            for arm in ("a_arm", "b_arm")
        ]
        query = (
            select(SuspicionRow.id, run, PairRatio.a_version, PairRatio.b_version)
            .join(PairRatio, and_(PairRatio.duel_run == run, *same))
            .where(PairRatio.a_role.in_(ROLLING))
            .order_by(PairRatio.a, PairRatio.b)
        )
        for suspicion, duel_run, a, b in session.execute(query):
            found.setdefault((suspicion, duel_run), (a, b))
    return found
