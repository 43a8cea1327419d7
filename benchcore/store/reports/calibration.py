"""Error rates of our own verdicts from stored calibration runs, and the spread of starts in every
series."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Row, select
from sqlalchemy.orm import Session

from benchcore.protocol import METHOD
from benchcore.store.duels import read_duel_runs
from benchcore.store.frames.reading import select_columns
from benchcore.store.history.series import IN_SERIES, find_newest_day
from benchcore.store.models import (
    IS_CALIBRATION_RUN,
    ContenderRun,
    DuelRun,
    PairRatio,
    StartRun,
    skip_index,
)
from benchcore.store.records import DuelRecord
from benchcore.store.reports.starts_needed import NEWEST_NIGHTS
from benchcore.verdict.confirmation import error_rates
from benchcore.verdict.confirmation.error_rates import (
    CELLS,
    FEWEST_FREEDOM,
    FEWEST_RUNS,
    FEWEST_STARTS,
    STARTS,
    CalibrationOutcome,
    CalibrationRun,
    Rate,
    compute_rates,
    find_smallest_visible,
    judge_run,
)
from benchcore.verdict.duel.ratios import ContenderTimes
from benchcore.verdict.history.thresholds import HISTORY_DAYS
from benchcore.workloads.settings import INJECTED_SLOWDOWN

_MOST_STARTS = 1000
"""Some 200 runs: their rates hold for today's code, and a night reads no more of them."""
_MOST_RUNS = 20_000
"""Duel runs from which the smallest visible change of each series is taken."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_OF_DUEL = ("id", "started_at", "seed", "workload", "case_name", "device_fingerprint")
JUDGED = ("rules", "rates", "runs", "unfinished", "lost", "starts")
_RIGHT = "found"
_FOUND = (_RIGHT, "found, with another culprit")
"""Outcomes of runs whose slow-down was found."""
_Newest = Mapping[str, Row[Any]]
"""The newest starts, each by its duel run's id."""


def measure_calibration(engine: Engine, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Rates with their intervals, each run's outcome, the smallest effect that a confirmation
    detects in each series, and the starts that don't count, with the reason. Rates are those of the
    newest `_MOST_STARTS` starts. What `JUDGED` names of an earlier answer is used again: later only
    new starts are read, and only runs that got one are judged."""
    newest = _list_newest(engine)
    rules = f"{METHOD} {_hash_rules()}"
    if earlier is None or earlier.get("rules") != rules:
        earlier = {"rules": rules, "runs": [], "starts": {}}
    if earlier["starts"].keys() != newest.keys() or "rates" not in earlier:
        earlier = {"rules": rules, **_judge(engine, newest, earlier)}
    return {
        **{name: earlier[name] for name in JUDGED},
        "smallest": [*_list_smallest(engine)],
        "fewest_runs": FEWEST_RUNS,
        "fewest_freedom": FEWEST_FREEDOM,
    }


def _list_newest(engine: Engine) -> _Newest:
    columns = [getattr(DuelRun, name) for name in _OF_DUEL]
    query = select(*columns).where(IS_CALIBRATION_RUN).order_by(DuelRun.started_at.desc())
    with engine.connect() as connection:
        return {each.id: each for each in connection.execute(query.limit(_MOST_STARTS))}


@cache
def _hash_rules() -> str:
    """Hash of the code that judges: rates hold for today's only."""
    verdict = Path(error_rates.__file__).parents[1]
    paths = [Path(__file__), *sorted(verdict.rglob("*.py"))]
    return hashlib.sha256(b"".join(each.read_bytes() for each in paths)).hexdigest()


def _judge(engine: Engine, newest: _Newest, earlier: Mapping[str, Any]) -> dict[str, Any]:
    known: Mapping[str, Any] = earlier["starts"]
    read = _read_starts(engine, {run: newest[run] for run in newest if run not in known})
    oldest_first = sorted(newest, key=lambda run: (newest[run].started_at, run))
    starts = {
        run: known[run] if run in known else _describe_start(*read[run]) for run in oldest_first
    }
    groups, unfinished = _group_starts(starts)
    judged = {tuple(row["of"]): row for row in earlier["runs"]}
    new = {run for of_run in groups.values() if tuple(of_run) not in judged for run in of_run}
    read |= _read_starts(engine, {run: newest[run] for run in new if run not in read})
    runs = [
        judged.get(tuple(of_run))
        or {**_describe(_judge_starts(run, [read[each][0] for each in of_run])), "of": of_run}
        for run, of_run in groups.items()
    ]
    rates = compute_rates([_Remembered(row) for row in runs])
    return {
        "rates": [_describe_rate(*each) for each in rates.items()],
        "runs": runs,
        "unfinished": unfinished,
        "lost": [each["lost"] for each in starts.values() if each["lost"] is not None],
        "starts": starts,
    }


def _describe_start(run: CalibrationRun, why_lost: str | None) -> dict[str, Any]:
    """The run that it belongs to, and why it does not count: what is remembered of a start."""
    named = {each.name: getattr(run, each.name) for each in fields(run) if each.name != "starts"}
    return {"run": {**named, "names": list(run.names)}, "lost": why_lost}


def _group_starts(
    starts: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[CalibrationRun, list[str]], int]:
    """The runs that can be judged with the ids of their starts, and how many still have too few. A
    run with missing starts is judged once a later one has begun."""
    of_run = defaultdict[CalibrationRun, list[str]](list)
    for id, each in starts.items():
        if each["lost"] is None:
            run: dict[str, Any] = each["run"]
            of_run[CalibrationRun(**{**run, "names": tuple(run["names"])}, starts=())].append(id)
    last = max((run.number for run in of_run), default=0)
    ended = {
        run: ids
        for run, ids in of_run.items()
        if len(ids) >= FEWEST_STARTS and (len(ids) >= STARTS or run.number < last)
    }
    return ended, len(of_run) - len(ended)


def _judge_starts(run: CalibrationRun, starts: Iterable[CalibrationRun]) -> CalibrationOutcome:
    return judge_run(replace(run, starts=tuple(start for each in starts for start in each.starts)))


@dataclass(frozen=True)
class _Remembered:
    """A run's row, as rates need it."""

    row: Mapping[str, Any]

    @property
    def percent(self) -> int:
        return self.row["percent"] if self.row["slowed"] else 0

    @property
    def alarm(self) -> bool:
        return self.row["alarm"]

    @property
    def found(self) -> bool:
        return self.row["outcome"] in _FOUND

    @property
    def right(self) -> bool:
        return self.row["outcome"] == _RIGHT


def _describe_rate(name: str, rate: Rate) -> dict[str, Any]:
    listed = {each: getattr(rate, each) for each in ("hits", "total", "share", "low", "high")}
    return {"rate": name, **listed, "too_few": rate.too_few}


def _describe(outcome: CalibrationOutcome) -> dict[str, Any]:
    run, finding = outcome.run, outcome.finding
    names: dict[str, str] = dict(zip(("a", "b"), run.names, strict=True))
    effect = outcome.effect
    return {
        "number": run.number,
        "series": run.title,
        "device": run.device,
        "slowed": names.get(run.slowed or ""),
        "percent": run.percent,
        "measured": None if effect is None else math.expm1(effect),
        "starts": len(run.starts),
        "alarm": outcome.alarm,
        "outcome": _describe_outcome(outcome),
        "culprit": names.get(finding.culprit, finding.culprit) if outcome.alarm else None,
        "reason": finding.reason,
    }


def _describe_outcome(outcome: CalibrationOutcome) -> str:
    if outcome.run.slowed is None:
        return "false alarm" if outcome.alarm else "no alarm, correctly"
    if not outcome.found:
        return "missed"
    return _RIGHT if outcome.right else _FOUND[1]


def _read_starts(engine: Engine, duels: _Newest) -> dict[str, tuple[CalibrationRun, str | None]]:
    """By id each start as a run of one start, and why it does not count."""
    with Session(engine) as session:
        slowdowns = _read_slowdowns(session, duels)
    return {
        each.duel_run: _read_start(each, duels[each.duel_run], slowdowns[each.duel_run])
        for each in read_duel_runs(engine, duels)
    }


_Slowdowns = Mapping[str, tuple[int, int]]
"""By contender: per cent of more work, and the fewest steps of its blocks."""


def _read_slowdowns(
    session: Session, duel_runs: Collection[str]
) -> Mapping[str, dict[str, tuple[int, int]]]:
    columns = (ContenderRun.duel_run, ContenderRun.name, ContenderRun.settings)
    query = (
        select_columns(*columns, StartRun.steps_per_block)
        .join(ContenderRun)
        .join(StartRun)
        .where(DuelRun.id.in_(duel_runs))
    )
    slowdowns = defaultdict[str, dict[str, tuple[int, int]]](dict)
    for run, name, settings, steps in session.execute(query):
        slowdowns[run][name] = (int(settings.get(INJECTED_SLOWDOWN, 0)), steps or 0)
    return slowdowns


def _read_start(
    record: DuelRecord, duel: Row[Any], slowdowns: _Slowdowns
) -> tuple[CalibrationRun, str | None]:
    sides: dict[str, ContenderTimes] = dict(zip(CELLS, record.sides, strict=False))
    percents = {cell: slowdowns.get(side.name, (0, 0))[0] for cell, side in sides.items()}
    run = CalibrationRun(
        number=duel.seed // STARTS,
        slowed="a" if percents.get("a_new") else "b" if percents.get("b_new") else None,
        percent=max(percents.values(), default=0),
        title=f"{duel.workload} {duel.case_name}: {_name_arms(sides)}",
        device=duel.device_fingerprint,
        names=(record.sides[0].framework, record.sides[min(2, len(record.sides) - 1)].framework),
        starts=({cell: record.rounds[side.name] for cell, side in sides.items()},),
    )
    return run, _why_lost(record, slowdowns)


def _name_arms(sides: Mapping[str, ContenderTimes]) -> str:
    return " and ".join(sides[cell].arm for cell in ("a_old", "b_old") if cell in sides)


def _why_lost(record: DuelRecord, slowdowns: _Slowdowns) -> str | None:
    """Why a start does not count: the reasons of a confirmation's starts, or blocks with too few
    steps to spread the injected work evenly."""
    where = f"duel run {record.duel_run}"
    if len(record.sides) != len(CELLS):
        return f"{where} has {len(record.sides)} contenders, not {len(CELLS)}"
    names = {side.name for side in record.sides}
    wrong = [each.reason for each in record.exclusions if each.names <= names]
    if wrong:
        return f"{where}: {wrong[0]}"
    sides = dict(zip(CELLS, record.sides, strict=True))
    for pair in (CELLS[:2], CELLS[2:4]):
        rounds = [set(record.rounds[sides[cell].name]) for cell in pair]
        if not set.intersection(*rounds):
            return f"{where}: disturbed throughout: every round of a side is degraded"
    for name, (percent, steps) in slowdowns.items():
        if percent and steps < 100 / percent:
            return (
                f"{where}: {name} has blocks of {steps} steps, and {percent} % more work can only "
                f"be applied evenly in {100 // percent} or more"
            )
    return None


def _list_smallest(engine: Engine) -> list[dict[str, Any]]:
    """The newest nights of each series across frameworks, and the smallest effect, as a share, that
    a confirmation's first look detects in four of five cases. A series that was not measured for
    `HISTORY_DAYS`, or in the newest `_MOST_RUNS` duel runs, is left out."""
    oldest = datetime.fromordinal(max(1, find_newest_day(engine) - HISTORY_DAYS))
    series = (
        *(DuelRun.workload, DuelRun.case_name, PairRatio.a_arm, PairRatio.b_arm),
        DuelRun.device_fingerprint,
    )
    newest_first = DuelRun.started_at.desc()
    first = select(DuelRun.started_at).order_by(newest_first).offset(_MOST_RUNS - 1).limit(1)
    query = (
        select(*series, PairRatio.start_log_ratios)
        .join(DuelRun, DuelRun.id == PairRatio.duel_run)
        .where(*IN_SERIES, skip_index(PairRatio.kind) == "cross_framework")
        .order_by(newest_first, DuelRun.id)
    )
    nights = defaultdict[tuple[str, str], list[Sequence[float]]](list)
    with engine.connect() as connection:  # a session makes its own rows of them first
        since = max(oldest.replace(tzinfo=UTC), connection.scalar(first) or _LONG_AGO)
        # A bound of the time lets the database read an index in this order.
        for workload, case, a, b, device, logs in connection.execute(
            query.where(DuelRun.started_at >= since)
        ):
            of_series = nights[f"{workload} {case}: {a} against {b}", device]
            if len(of_series) < NEWEST_NIGHTS:
                of_series.append(logs)
    listed = []
    for (title, device), newest in sorted(nights.items()):
        smallest = find_smallest_visible(newest)
        listed.append(
            {
                "series": title,
                "device": device,
                "nights": len(newest),
                "starts": sum(len(night) for night in newest),
                "smallest": None if smallest is None else math.expm1(smallest),
            }
        )
    return listed
