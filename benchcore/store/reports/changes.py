"""Every suspected or confirmed change with its series, its nights and its event, for pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, aliased

from benchcore.store.conditions import read_conditions
from benchcore.store.metrics import find_tracked
from benchcore.store.models import DuelRun, EventChange, EventRow, PairRatio, SuspicionRow
from benchcore.store.series import ROLLING, series_key
from benchcore.store.suspicions import changed_conditions

_COPIED = (
    *("id", "state", "trigger", "ratio", "low", "high", "reason", "since", "finding"),
    *("before_run", "since_run", "after_run", "opened_at", "updated_at"),
)


def list_changes(engine: Engine) -> list[dict[str, Any]]:
    """One row per suspicion, oldest first. `key` is its series; `case` describes what it is about;
    `campaign` is the night that showed it last; `versions` are (a, b) `before` and `after`;
    `event` is None until a confirmation. Reads the nights of suspicions only.
    """
    after = aliased(DuelRun)
    query = (
        select(SuspicionRow, after, EventRow)
        .join(after, after.id == SuspicionRow.after_run)
        .outerjoin(EventRow, EventRow.suspicion == SuspicionRow.id)
        .order_by(SuspicionRow.id)
    )
    with Session(engine) as session:
        rows = [tuple(row) for row in session.execute(query)]
        runs = {each for row, *_ in rows for each in (row.before_run, row.after_run)}
        known = read_conditions(engine, runs=sorted(runs))
        versions = _read_versions(session, [row for row, *_ in rows])
        history = _read_history(session)
        return [
            {
                **{name: getattr(row, name) for name in _COPIED},
                "key": series_key(row),
                "metric": find_tracked(row.metric),
                "case": _describe_case(duel),
                "campaign": duel.campaign,
                "conditions": changed_conditions(row, known),
                "versions": versions[row.id],
                "event": None if event is None else _describe_event(event, history),
            }
            for row, duel, event in rows
        ]


def _describe_case(duel: DuelRun) -> dict[str, Any]:
    names = ("workload", "case_name", "use_case", "batch", "precision", "track", "device_model")
    found = {name: getattr(duel, name) for name in (*names, "site")}
    return {**found, "device": duel.device["name"]}


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


def _read_versions(session: Session, rows: Sequence[SuspicionRow]) -> dict[int, dict[str, Any]]:
    """By suspicion: both sides' versions in the night before it and in the newest one."""
    runs = sorted({each for row in rows for each in (row.before_run, row.after_run)})
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for start in range(0, len(runs), 500):  # SQLite limits the variables of a query
        part = runs[start : start + 500]
        for each in session.scalars(select(PairRatio).where(PairRatio.duel_run.in_(part))):
            if each.a_role in ROLLING:
                place = found.setdefault((each.duel_run, each.a_arm, each.b_arm), [])
                place.append((each.a_version, each.b_version))
    return {
        row.id: {
            when: found.get((run, row.a_arm, row.b_arm), [("", "")])[0]
            for when, run in (("before", row.before_run), ("after", row.after_run))
        }
        for row in rows
    }
