"""The value of a tracked metric in each start of a contender, from the columns that ingest filled.

Step time is not among them: its ratio is judged from paired rounds (`benchcore.verdict.starts`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Any

from sqlalchemy import ColumnElement, Engine, Select, and_, case, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session, load_only

from benchcore.store.incoming.proofs import OF_DUEL
from benchcore.store.metrics import ERRORS, TRACKED, Metric, find_tracked
from benchcore.store.models import (
    ContenderRun,
    DuelRun,
    PairRatio,
    Proof,
    StartRun,
    skip_index,
)
from benchcore.verdict.duel.latency import summarise_latency
from benchcore.verdict.duel.step_profile import profile_step, step_energy
from benchcore.verdict.history.series import STEP_TIME

COMPILING = ("trace", "lower", "compile")
_CACHES_OF = {"cold_compile_s": "cold", "warm_compile_s": "warm"}
_DISPATCH = "profile.dispatch"
PROVEN_ARMS = ("jax-jit", "torch-eager")
"""Proofs compute with the settings of these arms (`benchcore.running.equivalence`)."""
_AT_ONCE = 500
STORED = tuple(
    each for each in map(find_tracked, TRACKED) if each.key != STEP_TIME and each not in ERRORS
)
"""The metrics of the column `contender_run.amounts`."""
Amounts = Mapping[tuple[str, str], Mapping[str, float | None]]
"""By duel run and contender, its value of each metric over its starts; None = not measured."""
_Untimed = Mapping[str, Mapping[str, Any] | None]
_OVER_STARTS: Mapping[str, Callable[[Iterable[float]], float]] = {
    "max": max,
    "mean": fmean,
    "median": median,
    "sum": sum,
}


def read_contenders(
    session: Session, metrics: Sequence[Metric], runs: Select[tuple[str]]
) -> Iterator[tuple[tuple[str, str], dict[str, dict[int, float]]]]:
    """Per contender (duel run and name) of these duel runs: by metric, its value in each start.

    Step time must not be among the metrics.
    """
    errors = _read_errors(session, [each for each in metrics if each in ERRORS], runs)
    metrics = [each for each in metrics if each not in ERRORS]
    query = (
        select(StartRun, ContenderRun.cold, ContenderRun.warm)
        .join(
            ContenderRun,
            and_(
                ContenderRun.duel_run == StartRun.duel_run,
                ContenderRun.name == StartRun.contender,
            ),
        )
        .where(StartRun.duel_run.in_(runs))
        .order_by(StartRun.duel_run, StartRun.contender, StartRun.start_index)
        .options(load_only(*_columns_of(metrics), raiseload=True))
        .execution_options(yield_per=500)
    )
    needs_device = any(each.path == _DISPATCH for each in metrics)
    on_gpu = _list_on_gpu(session, runs) if needs_device else set()
    rows = session.execute(query)
    for contender, of_one in groupby(rows, lambda row: (row[0].duel_run, row[0].contender)):
        found = list(of_one)
        starts = [start for start, *_ in found]
        untimed: _Untimed = {"cold": found[0][1], "warm": found[0][2]}
        is_on_gpu = contender[0] in on_gpu
        values = {each.key: read_values(each, starts, untimed, is_on_gpu) for each in metrics}
        yield contender, values | errors[contender]


def _read_errors(
    session: Session, metrics: Sequence[Metric], runs: Select[tuple[str]]
) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """By contender with the settings that proofs have: the errors of its environment in the proof
    of its case's kind, as those of start 0."""
    found: dict[tuple[str, str], dict[str, dict[int, float]]]
    found = defaultdict(lambda: {each.key: {} for each in metrics})
    if not metrics:
        return found
    keys = {each.path.removeprefix("proof."): each.key for each in metrics}
    is_a = Proof.a_key == ContenderRun.environment_key
    error = func.max(case((is_a, Proof.a_error), else_=Proof.b_error))
    contender = (ContenderRun.duel_run, ContenderRun.name)
    query = (
        select(*contender, Proof.quantity, error)
        .join(DuelRun, DuelRun.id == ContenderRun.duel_run)
        .join(Proof, and_(OF_DUEL, or_(is_a, Proof.b_key == ContenderRun.environment_key)))
        .where(ContenderRun.duel_run.in_(runs), skip_index(ContenderRun.arm).in_(PROVEN_ARMS))
        .where(Proof.quantity.in_(keys))
        .group_by(*contender, Proof.quantity)
    )
    for duel_run, name, quantity, value in session.execute(query):
        if value:
            found[duel_run, name][keys[quantity]] = {0: float(value)}
    return found


def _list_on_gpu(session: Session, runs: Select[tuple[str]]) -> set[str]:
    """Those of the duel runs that were on a GPU: their profiles are read in another way."""
    is_gpu = DuelRun.device["kind"].as_string() == "gpu"
    return set(session.scalars(select(DuelRun.id).where(DuelRun.id.in_(runs), is_gpu)))


def measure_amounts(
    untimed: _Untimed, starts: Iterable[Any], *, on_gpu: bool
) -> dict[str, float | None]:
    """What the column `contender_run.amounts` holds: the contender's tracked metrics from its
    starts, which have a start_run's attributes; None = not measured. Step times are in ratios,
    errors in proofs."""
    ordered = sorted(starts, key=lambda start: start.start_index)
    if not ordered:
        return dict.fromkeys(each.key for each in STORED)
    return {
        each.key: aggregate(each, read_values(each, ordered, untimed, on_gpu)) for each in STORED
    }


def fill_amounts(session: Session) -> None:
    """Compute the amounts of the contenders without any from their starts."""
    lacking = select(ContenderRun.duel_run).where(ContenderRun.amounts.is_(None)).distinct()
    runs = list(session.scalars(lacking.order_by(ContenderRun.duel_run)))
    contender = (ContenderRun.duel_run, ContenderRun.name)
    for part in _split(runs):
        of_part = ContenderRun.duel_run.in_(part)
        found = _compute_amounts(session, STORED, part)
        unmeasured = dict.fromkeys(each.key for each in STORED)
        session.execute(
            update(ContenderRun),
            [
                {
                    "duel_run": run,
                    "name": name,
                    "amounts": {**unmeasured, **found.get((run, name), {})},
                }
                for run, name in session.execute(select(*contender).where(of_part)).all()
            ],
        )


def read_amounts(
    session: Session, metrics: Sequence[Metric], condition: ColumnElement[bool]
) -> Amounts:
    """The amounts of every contender of the duel runs with such a pair; step times are in their
    ratios. A metric that is newer than the rows is computed from their starts."""
    errors = [each for each in metrics if each in ERRORS]
    stored = [each for each in metrics if each.key != STEP_TIME and each not in ERRORS]
    runs = select(PairRatio.duel_run).join(DuelRun, DuelRun.id == PairRatio.duel_run)
    runs = runs.where(condition)
    found, lacking = dict[tuple[str, str], dict[str, float | None]](), set[str]()
    wanted = {each.key for each in stored}
    columns = (ContenderRun.duel_run, ContenderRun.name, ContenderRun.amounts)
    query = select(*columns).where(ContenderRun.duel_run.in_(runs))
    for run, name, amounts in session.execute(query) if stored else ():
        found[run, name] = amounts or {}
        if not wanted <= found[run, name].keys():
            lacking.add(run)
    for part in _split(sorted(lacking)):
        for contender, amounts in _compute_amounts(session, stored, part).items():
            found[contender].update(amounts)
    for contender, of_metrics in _read_errors(session, errors, runs).items():
        amounts = found.setdefault(contender, {})
        amounts.update({key: values[0] for key, values in of_metrics.items() if values})
    return found


def _compute_amounts(
    session: Session, metrics: Sequence[Metric], runs: Sequence[str]
) -> dict[tuple[str, str], dict[str, float | None]]:
    """Compute the amounts of the contenders with starts in these duel runs."""
    chosen = select(DuelRun.id).where(DuelRun.id.in_(runs))
    return {
        contender: {each.key: aggregate(each, values[each.key]) for each in metrics}
        for contender, values in read_contenders(session, metrics, chosen)
    }


def _split(runs: Sequence[str]) -> Iterator[Sequence[str]]:
    """Parts of the duel runs, as SQLite limits the variables of a query."""
    return (runs[first : first + _AT_ONCE] for first in range(0, len(runs), _AT_ONCE))


def read_campaign_values(
    engine: Engine, campaign: str, metric: Metric
) -> dict[tuple[str, str], dict[int, float]]:
    """The metric's value in each start, by duel run and contender of a campaign."""
    runs = select(DuelRun.id).where(DuelRun.campaign == campaign)
    with Session(engine) as session:
        found = read_contenders(session, [metric], runs)
        return {contender: values[metric.key] for contender, values in found}


def read_campaign_errors(engine: Engine, campaigns: Sequence[str]) -> Amounts:
    """The errors against the float64 reference of every contender of these campaigns whose
    environment a proof measured."""
    runs = select(DuelRun.id).where(DuelRun.campaign.in_(campaigns))
    with Session(engine) as session:
        found = _read_errors(session, ERRORS, runs)
    return {
        contender: {key: values[0] for key, values in of_metrics.items() if values}
        for contender, of_metrics in found.items()
    }


def read_values(
    metric: Metric,
    starts: Sequence[StartRun],
    untimed: _Untimed,
    on_gpu: bool,
) -> dict[int, float]:
    """By start, the metric's value in its unit. Starts in which it was not measured are left out,
    as are amounts of zero or below, which have no ratio.

    A percentile needs the samples of all starts, so it is the first one's. `untimed` are the
    contender's processes beside the starts that compiled with empty (`cold`) and with filled
    (`warm`) caches. Without a start that did, their compile times are start 0's.
    """
    if metric.key == "latency_p95_ns":
        latency = summarise_latency([each.latency_ns for each in starts])
        p95_ns = None if latency is None else latency.p95_ns
        return {} if p95_ns is None else {starts[0].start_index: p95_ns}
    values = {each.start_index: _read(metric, each, on_gpu) for each in starts}
    beside = untimed.get(_CACHES_OF.get(metric.key, ""))
    if beside and all(value is None for value in values.values()):
        values = {0: sum_compilation(beside["stages"])}
    return {
        start: float(value)
        for start, value in values.items()
        if value is not None and math.isfinite(value) and value > 0
    }


def aggregate(metric: Metric, values: Mapping[int, float]) -> float | None:
    """The contender's value from its starts: as the table defines, else the mean; None = none."""
    if not values:
        return None
    return float(_OVER_STARTS[metric.over_starts or "mean"](values.values()))


def sum_compilation(stages: Mapping[str, float | None]) -> float | None:
    """Seconds of tracing, lowering and compiling together; None = nothing was compiled."""
    known = [seconds for each in COMPILING if (seconds := stages.get(each))]
    return sum(known) if known else None


def count_operations(profile: Mapping[str, Any] | None) -> int | None:
    """Operations of the compiled step, of all kinds; None = its program was not read."""
    program = (profile or {}).get("program")
    return sum(program["counts"].values()) if program and program["counts"] else None


def _columns_of(metrics: Iterable[Metric]) -> list[InstrumentedAttribute[Any]]:
    """The columns of a start that hold these metrics."""
    roots = {each.path.partition(".")[0] for each in metrics}
    names = {"caches", "stages"} | (roots - {"memory", "warm"})
    names |= {each.path.partition(".")[2] for each in metrics if each.path.startswith("memory.")}
    return [getattr(StartRun, name) for name in sorted(names)]


def _read(metric: Metric, start: StartRun, on_gpu: bool) -> float | None:
    root, _, name = metric.path.partition(".")
    if metric.key in _CACHES_OF:
        had = start.caches == _CACHES_OF[metric.key]
        return sum_compilation(start.stages) if had else None
    if root == "stages":
        return start.stages.get(name)
    if root == "memory":
        return getattr(start, name)
    if root == "measured":
        return (start.measured or {}).get(name)
    if metric.path == _DISPATCH:
        step = profile_step(start.profile, on_gpu=on_gpu)
        return None if step is None else step.dispatch_ns
    if root == "profile":
        return count_operations(start.profile)
    assert metric.key == "gross_mj", f"no reader for the metric {metric.key}"
    energy = step_energy(start.energy)
    return None if energy is None else energy.gross_mj
