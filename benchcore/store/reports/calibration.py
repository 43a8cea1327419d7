"""Error rates of our own verdicts from stored calibration runs, and the spread of starts in every
series."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Row, and_, func, select
from sqlalchemy.orm import Session

from benchcore.protocol import METHOD
from benchcore.store.duels import read_starts
from benchcore.store.frames.reading import select_columns
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
from benchcore.store.series import IN_SERIES, find_newest_day
from benchcore.verdict.confirmation.decide import Start
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
_OF_DUEL = ("id", "seed", "workload", "case_name", "device_fingerprint")
JUDGED = ("judged_from", "rates", "runs", "unfinished", "lost")
_Newest = Mapping[str, Row[Any]]
"""The newest starts, each by its duel run's id."""


def measure_calibration(engine: Engine, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Rates with their intervals, each run's outcome, the smallest effect that a confirmation
    detects in each series, and the starts that don't count, with the reason. Rates are those of the
    newest `_MOST_STARTS` starts. What `JUDGED` names of an earlier answer is used again while no
    newer start is stored."""
    newest = _list_newest(engine)
    judged_from = _identify(newest)
    if earlier is None or earlier["judged_from"] != judged_from:
        earlier = {"judged_from": judged_from, **_judge(engine, newest)}
    return {
        **{name: earlier[name] for name in JUDGED},
        "smallest": [*_list_smallest(engine)],
        "fewest_runs": FEWEST_RUNS,
        "fewest_freedom": FEWEST_FREEDOM,
    }


def _list_newest(engine: Engine) -> _Newest:
    columns = [getattr(DuelRun, name) for name in _OF_DUEL]
    query = select(*columns).where(IS_CALIBRATION_RUN).order_by(DuelRun.started_at.desc())
    with Session(engine) as session:
        return {each.id: each for each in session.execute(query.limit(_MOST_STARTS))}


def _identify(newest: _Newest) -> str:
    """The starts, and the method by which they are judged."""
    return hashlib.sha256("\n".join([str(METHOD), *newest]).encode()).hexdigest()


def _judge(engine: Engine, newest: _Newest) -> dict[str, Any]:
    runs, unfinished, lost = _read_runs(engine, newest)
    outcomes = [judge_run(each) for each in runs]
    return {
        "rates": [_describe_rate(name, rate) for name, rate in compute_rates(outcomes).items()],
        "runs": [_describe(each) for each in outcomes],
        "unfinished": unfinished,
        "lost": lost,
    }


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
    return "found" if outcome.right else "found, with another culprit"


def _read_runs(engine: Engine, newest: _Newest) -> tuple[list[CalibrationRun], int, list[str]]:
    """The runs that can be judged, oldest first; how many still have too few starts; and why starts
    don't count. A run with missing starts is judged once a later one has begun."""
    of_run = defaultdict[CalibrationRun, list[Start]](list)
    lost = list[str]()
    for each, why_lost in _read_starts(engine, newest):
        if why_lost is not None:
            lost.append(why_lost)
        else:
            of_run[replace(each, starts=())] += each.starts
    runs, unfinished = list[CalibrationRun](), 0
    last = max((run.number for run in of_run), default=0)
    for run, starts in of_run.items():
        ended = len(starts) >= STARTS or run.number < last
        if len(starts) < FEWEST_STARTS or not ended:
            unfinished += 1
        else:
            runs.append(replace(run, starts=tuple(starts)))
    return runs, unfinished, lost


def _read_starts(engine: Engine, duels: _Newest) -> list[tuple[CalibrationRun, str | None]]:
    """Each start as a run of one start, and why it does not count."""
    with Session(engine) as session:
        slowdowns = _read_slowdowns(session, duels)
    records = read_starts(engine, duels)
    return [_read_start(each, duels[each.duel_run], slowdowns[each.duel_run]) for each in records]


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
    oldest = datetime.fromordinal(max(1, find_newest_day(engine) - HISTORY_DAYS)).replace(
        tzinfo=UTC
    )
    series = (
        *(DuelRun.workload, DuelRun.case_name, PairRatio.a_arm, PairRatio.b_arm),
        DuelRun.device_fingerprint,
    )
    newest_first = (DuelRun.started_at.desc(), DuelRun.id)
    recent = select(DuelRun.id).order_by(DuelRun.started_at.desc()).limit(_MOST_RUNS)
    place = func.row_number().over(partition_by=series, order_by=newest_first).label("place")
    ranked = (
        select(PairRatio.duel_run, PairRatio.a, PairRatio.b, *series, place)
        .join(DuelRun, DuelRun.id == PairRatio.duel_run)
        .where(*IN_SERIES, skip_index(PairRatio.kind) == "cross_framework")
        .where(DuelRun.id.in_(recent), DuelRun.started_at >= oldest)
        .subquery()
    )
    same = [getattr(PairRatio, name) == ranked.c[name] for name in ("duel_run", "a", "b")]
    query = (
        select(*(ranked.c[each.key] for each in series), PairRatio.start_log_ratios)
        .join(ranked, and_(*same))
        .where(ranked.c.place <= NEWEST_NIGHTS)
        .order_by(ranked.c.place)
    )
    nights = defaultdict[tuple[str, str], list[Sequence[float]]](list)
    with Session(engine) as session:
        for workload, case, a, b, device, logs in session.execute(query):
            nights[f"{workload} {case}: {a} against {b}", device].append(logs)
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
