"""What confirmations would have found in the made-up year, and what people would have done."""

from __future__ import annotations

import random
from dataclasses import asdict
from datetime import date
from typing import Any

from benchcore.demo import story
from benchcore.experiments.alerting.shift_alerts import write_shift
from benchcore.protocol import name_case
from benchcore.store.history.backdate import backdate
from benchcore.store.database import Engine
from benchcore.store.history.events import (
    annotate_event,
    list_events,
    move_event,
    record_sent,
    store_finding,
)
from benchcore.store.metrics import TRACKED
from benchcore.store.records import ContenderRecord, SuspicionRecord
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import list_suspicions, read_suspicion, refresh_suspicions
from benchcore.verdict.confirmation.decide import LOOKS, Finding, decide
from benchcore.verdict.history.series import STEP_TIME

_STARTS = LOOKS[0]
_ROUNDS = 4
_TOO_NEW = 3
"""Suspicions of this many days are still open."""
_SPREAD = 0.003
_UNTRIAGED_DAYS = 40
_ANSWERED_DAYS = 110
_REGRESSION = (
    ("investigating", "asked upstream (made up)"),
    ("accepted", "known upstream; we take the new level (made up)"),
)
_IMPROVEMENT = (("improvement", "as the release notes say (made up)"),)
_WHO = "made-up-engineer"


def write_findings(engine: Engine, last: date) -> None:
    """Suspect, confirm, open events and triage all but the newest ones, as of the `last` night."""
    series = read_series(engine, metrics=TRACKED)
    refresh_suspicions(engine, series)
    known = {each.key: each for each in series}
    findings = {
        row["id"]: _confirm(engine, read_suspicion(engine, row["id"], known))
        for row in list_suspicions(engine)
        if (last - date.fromisoformat(row["since"])).days > _TOO_NEW
    }
    for event in list_events(engine):
        record_sent(engine, event["id"])
        age = (last - date.fromisoformat(event["since"])).days
        _triage(engine, event, age, is_better=_is_better(findings[event["suspicion"]]))
    backdate(engine)


def _confirm(engine: Engine, suspicion: SuspicionRecord) -> Finding:
    luck = random.Random(suspicion.id)
    starts = [_make_start(suspicion, luck) for _ in range(_STARTS)]
    (finding,) = decide([(starts, suspicion.levels)], final=True, num_looks=1)
    outcome = _describe(suspicion, finding)
    store_finding(
        engine,
        suspicion.id,
        finding,
        alert=write_shift(suspicion, finding, outcome),
        names={"a": suspicion.levels.a, "b": suspicion.levels.b},
        campaigns=[],
        lost=[],
        candidates=[],
        probe_failures=[],
    )
    return finding


def _is_better(finding: Finding) -> bool:
    """Whether the culprit needs less than before; every metric of this year is an amount."""
    effect = finding.b if finding.culprit == "b" else finding.a
    return effect is not None and (effect.log_ratio or 0.0) < 0


def _make_start(suspicion: SuspicionRecord, luck: random.Random) -> dict[str, dict[int, float]]:
    """One start of the old and the new environments. Equal ones are measured once, but for the
    control."""
    machine = 1 + luck.gauss(0, _SPREAD)
    measured: dict[str, dict[int, float]] = {}
    cells: dict[str, dict[int, float]] = {}
    for cell in ("a_old", "a_new", "b_old", "b_new"):
        side = getattr(suspicion, cell)
        if side.environment_key not in measured:
            measured[side.environment_key] = _measure(suspicion, side, machine, luck)
        cells[cell] = measured[side.environment_key]
    return {**cells, "control": _measure(suspicion, suspicion.a_old, machine, luck)}


def _measure(
    suspicion: SuspicionRecord, side: ContenderRecord, machine: float, luck: random.Random
) -> dict[int, float]:
    key = suspicion.key
    case = name_case(key.workload, key.case_name)
    amount = 1e6 * machine * story.measure_factor(side.version, case, key.metric)
    num_rounds = _ROUNDS if key.metric == STEP_TIME else 1
    return {each: amount * (1 + luck.gauss(0, _SPREAD)) for each in range(num_rounds)}


def _describe(suspicion: SuspicionRecord, finding: Finding) -> dict[str, Any]:
    names = {"a": suspicion.levels.a, "b": suspicion.levels.b}
    return {
        "suspicion": suspicion.id,
        "series": suspicion.key.title,
        "metric": suspicion.key.metric,
        "culprit": names.get(finding.culprit, finding.culprit),
        "conditions": [asdict(each) for each in suspicion.conditions],
        "candidates": [],
        "moved": [],
        "dashboard": None,
    }


def _triage(engine: Engine, event: dict[str, Any], age: int, *, is_better: bool) -> None:
    """People answered what is old; the newest events wait."""
    if age < _UNTRIAGED_DAYS:
        return
    annotate_event(engine, event["id"], who=_WHO, owner=_WHO)
    answers = _IMPROVEMENT if is_better else _REGRESSION
    for state, note in answers[: 1 if age < _ANSWERED_DAYS else None]:
        if event["state"] == "untriaged":
            move_event(engine, event["id"], state, who=_WHO, note=note)
