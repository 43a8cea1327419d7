"""The database's rows as pandas DataFrames, for checks and charts. Raw samples stay behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pandas as pd
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Engine,
    Float,
    Integer,
    Select,
    String,
    and_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased
from sqlalchemy.types import TypeEngine

from benchcore.store.ceilings import add_physics, read_sentinels
from benchcore.store.models import (
    CheckMark,
    ContenderRun,
    DuelRun,
    Equivalence,
    PairRatio,
    Proof,
    StartRun,
    UtcDateTime,
)
from benchcore.store.parity import add_parity, read_sides
from benchcore.store.trials import NO_TRIAL
from benchcore.verdict.energy import step_energy
from benchcore.verdict.latency import host_boundness, summarise_latency
from benchcore.verdict.where_time import StepProfile, list_kernels, profile_step

_STAGES = ("import", "init", "build", "trace", "lower", "compile", "first_run", "warm_up")
_COMPILING = ("trace", "lower", "compile")
_CASE = (
    DuelRun.campaign,
    DuelRun.id.label("duel_run"),
    DuelRun.started_at,
    DuelRun.workload,
    DuelRun.case_name,
    DuelRun.use_case,
    DuelRun.batch,
    DuelRun.precision,
    DuelRun.track,
)
_MEMORY = (
    StartRun.planned_bytes,
    StartRun.allocator_peak_bytes,
    StartRun.process_peak_bytes,
    StartRun.process_baseline_bytes,
)
_MAY_BE_MISSING = {each.key for each in _MEMORY} | {
    "steps_per_block",
    "compilations_in_blocks",
    "cache_hits",
    "shortest_block_ns",
    "clock_resolution_ns",
    "num_degraded",
}
_OVER_STARTS = (
    *("latency_samples", "latency_p50_ns", "latency_p95_ns", "latency_p99_ns", "latency_mean_ns"),
    *("latency_sd_ns", "latency_min_ns", "latency_max_ns", "gross_mj", "net_mj"),
)
_MOST_NAMED = 3
_OLDEST_FIRST = (DuelRun.started_at, DuelRun.id)


def duel_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a duel run: where and when it ran, and with which harness."""
    query = _select(
        *_CASE,
        DuelRun.ended_at,
        DuelRun.site,
        DuelRun.node,
        DuelRun.device_model,
        DuelRun.device_fingerprint,
        DuelRun.host,
        DuelRun.harness_version,
        DuelRun.snapshot,
        DuelRun.method,
    )
    return _read(engine, query.order_by(*_OLDEST_FIRST), campaign)


def contender_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a contender run; None = of every campaign.

    `median_step_ns` is the median of the starts' medians over the blocks that were not degraded;
    `num_degraded` counts those that were (missing = not counted then), `num_unsteady` the
    starts whose warm-up ended at its limit, before its blocks agreed. A stage's seconds are the
    mean over the starts that reached it, memory is the largest over starts (it is measured once),
    latency is that of all starts' samples together, and `host_boundness` its median over
    `median_step_ns`. `cold_compile_s` and `warm_compile_s` are trace, lower and compile together,
    with empty caches, in a process of its own, and with filled ones; `items_per_s` is the batch
    over `median_step_ns`. `gross_mj` and `net_mj` are a step's. `compute_share`, `bandwidth_share`
    and `limit_share` hold the fastest start against the ceilings of the campaign's sentinels.
    """
    query = _select(
        *_CASE,
        DuelRun.device_model,
        DuelRun.device_fingerprint,
        DuelRun.method,
        DuelRun.flops_per_step,
        DuelRun.least_bytes_per_step,
        DuelRun.device,
        DuelRun.host,
        ContenderRun.name,
        ContenderRun.position,
        ContenderRun.arm,
        ContenderRun.role,
        ContenderRun.framework,
        ContenderRun.version,
        ContenderRun.environment_key,
        ContenderRun.python_version,
        ContenderRun.build,
        ContenderRun.status,
        ContenderRun.stage,
        ContenderRun.reason,
        ContenderRun.cause,
        ContenderRun.cold,
        DuelRun.num_starts.label("planned_starts"),
        DuelRun.num_rounds.label("planned_rounds"),
        DuelRun.stopped_by,
        DuelRun.checkpoint,
    )
    query = query.join(ContenderRun, ContenderRun.duel_run == DuelRun.id)
    contenders = _read(engine, query.order_by(*_OLDEST_FIRST, ContenderRun.position), campaign)
    starts = start_frame(engine, campaign)
    starts["compiled_s"] = starts[[f"{each}_s" for each in _COMPILING]].sum(axis=1, min_count=1)
    per_start = starts.groupby(["duel_run", "name"])
    warm = starts.loc[starts["caches"].eq("warm")].groupby(["duel_run", "name"])
    over_starts = pd.DataFrame(
        {
            "num_starts": per_start.size(),
            "num_blocks": per_start["num_blocks"].sum(),
            "num_degraded": per_start["num_degraded"].sum(min_count=1),
            "num_unsteady": per_start["unsteady"].sum(min_count=1),
            "median_step_ns": per_start["median_step_ns"].median(),
            "fastest_step_ns": per_start["median_step_ns"].min(),
            **{f"{stage}_s": per_start[f"{stage}_s"].mean() for stage in _STAGES},
            **{each.key: per_start[each.key].max() for each in _MEMORY},
            "warm_compile_s": warm["compiled_s"].mean(),
        }
    )
    over_starts = over_starts.join(_latency_and_energy(engine, campaign))
    cold = [_sum_compilation(each) for each in contenders.pop("cold")]
    contenders["cold_compile_s"] = pd.Series(cold, index=contenders.index, dtype="float64")
    frame = contenders.join(over_starts, on=["duel_run", "name"])
    times = zip(frame["latency_p50_ns"], frame["median_step_ns"], strict=True)
    frame["host_boundness"] = pd.Series(
        [host_boundness(*each) for each in times], index=frame.index, dtype="float64"
    )
    frame["items_per_s"] = frame["batch"] / frame["median_step_ns"] * 1e9
    counts = ["num_starts", "num_blocks"]
    frame = frame.assign(**{each: frame[each].fillna(0).astype("int64") for each in counts})
    return add_physics(frame, read_sentinels(engine, campaign))


def _sum_compilation(cold: Any) -> float | None:
    stages = cold["stages"] if isinstance(cold, dict) else {}
    return sum(known) if (known := [s for each in _COMPILING if (s := stages.get(each))]) else None


def _latency_and_energy(engine: Engine, campaign: str | None) -> pd.DataFrame:
    """Of each contender run, by duel run and name: what takes the samples of all its starts."""
    query = _select(StartRun.duel_run, StartRun.contender, StartRun.latency_ns, StartRun.energy)
    query = query.join(StartRun, StartRun.duel_run == DuelRun.id)
    starts = _read(engine, query, campaign)
    groups = starts.groupby(["duel_run", "contender"])
    rows = [_summarise(of_one["latency_ns"], of_one["energy"]) for _, of_one in groups]
    index = groups.size().index.rename(["duel_run", "name"])
    return pd.DataFrame(rows, index=index, columns=list(_OVER_STARTS), dtype="float64")


def _summarise(latencies: Iterable[Any], energies: Iterable[Any]) -> dict[str, float | None]:
    latency = summarise_latency(list(latencies))
    measured = [energy for each in energies if (energy := step_energy(each))]
    found: dict[str, float | None] = dict.fromkeys(_OVER_STARTS)
    if latency:
        values = dataclasses.asdict(latency)
        found["latency_samples"] = values.pop("num_samples")
        found.update({f"latency_{key}": value for key, value in values.items()})
    if measured:
        found.update(dataclasses.asdict(measured[-1]))
    return found


def start_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a start of a contender run, without its blocks; None = of every campaign."""
    query = _select(
        *_CASE,
        DuelRun.num_rounds.label("planned_rounds"),
        ContenderRun.name,
        ContenderRun.arm,
        ContenderRun.framework,
        ContenderRun.version,
        ContenderRun.status.label("contender_status"),
        StartRun.start_index,
        StartRun.status,
        StartRun.started_at.label("start_started_at"),
        StartRun.caches,
        StartRun.cache_hits,
        StartRun.stages,
        StartRun.warm_up,
        StartRun.steps_per_block,
        StartRun.compilations_in_blocks,
        StartRun.num_blocks,
        StartRun.shortest_block_ns,
        StartRun.clock_resolution_ns,
        StartRun.num_degraded,
        StartRun.median_step_ns,
        *_MEMORY,
        StartRun.energy,
        StartRun.inputs_sha256,
    )
    query = query.join(ContenderRun, ContenderRun.duel_run == DuelRun.id).join(
        StartRun,
        (StartRun.duel_run == ContenderRun.duel_run) & (StartRun.contender == ContenderRun.name),
    )
    order = (*_OLDEST_FIRST, ContenderRun.position, StartRun.start_index)
    frame = _read(engine, query.order_by(*order), campaign)
    for stage in _STAGES:
        seconds = [stages[stage] for stages in frame["stages"]]
        frame[f"{stage}_s"] = pd.Series(seconds, index=frame.index, dtype="float64")
    unsteady = [None if each is None else float(not each["steady"]) for each in frame["warm_up"]]
    frame["unsteady"] = pd.Series(unsteady, index=frame.index, dtype="float64")
    return frame.drop(columns=["stages", "warm_up"])


def profile_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a contender run that was profiled: where the time of a step goes.

    The columns of `benchcore.verdict.where_time.StepProfile`, `longest`, its longest kernels, and
    `grad_mode`, what torch kept for a backward pass.
    """
    columns = (ContenderRun.name, ContenderRun.arm, ContenderRun.framework, ContenderRun.version)
    query = _select(*_CASE, *columns, DuelRun.device, StartRun.median_step_ns, StartRun.profile)
    query = query.join(ContenderRun, ContenderRun.duel_run == DuelRun.id).join(
        StartRun,
        (StartRun.duel_run == ContenderRun.duel_run) & (StartRun.contender == ContenderRun.name),
    )
    query = query.where(StartRun.profile.is_not(None), ContenderRun.status == "ok")
    frame = _read(engine, query.order_by(*_OLDEST_FIRST, ContenderRun.position), campaign)
    pairs = zip(frame["profile"], frame["device"], strict=True)
    steps = [profile_step(profile, on_gpu=device["kind"] == "gpu") for profile, device in pairs]
    numbers = {
        each.name: pd.Series(
            [getattr(step, each.name) for step in steps], index=frame.index, dtype="float64"
        )
        for each in dataclasses.fields(StepProfile)
    }
    longest = ["; ".join(list_kernels(each, _MOST_NAMED)) for each in frame["profile"]]
    kept = frame.drop(columns=["profile", "device"]).assign(**numbers)
    words = {"longest": longest, "grad_mode": [each.get("grad_mode") for each in frame["profile"]]}
    return kept.assign(
        **{name: pd.Series(each, index=frame.index, dtype="str") for name, each in words.items()}
    )


def equivalence_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a compared quantity of a pair; None = of every campaign."""
    query = _select(
        *_CASE,
        Equivalence.a,
        Equivalence.b,
        Equivalence.quantity,
        Equivalence.max_relative,
        Equivalence.l2_relative,
        Equivalence.tolerance,
        Equivalence.agrees,
    )
    query = query.join(Equivalence, Equivalence.duel_run == DuelRun.id)
    order = (*_OLDEST_FIRST, Equivalence.a, Equivalence.b, Equivalence.quantity)
    return _read(engine, query.order_by(*order), campaign)


def proof_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a quantity proven of a pair of contenders: of their environments, on the duel's
    device, by the snapshot that measured them. A pair without rows was not proven."""
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    columns = (Proof.oracle_error, Proof.oracle_bound, Proof.a_error, Proof.a_bound)
    rest = (Proof.b_error, Proof.b_bound, Proof.passed, Proof.reason, Proof.first_drift)
    query = _select(
        *_CASE, one.name.label("a"), other.name.label("b"), Proof.quantity, *columns, *rest
    )
    query = query.join(one, one.duel_run == DuelRun.id).join(other, other.duel_run == DuelRun.id)
    query = query.join(
        Proof,
        and_(
            Proof.a_key == one.environment_key,
            Proof.b_key == other.environment_key,
            *(getattr(Proof, key) == getattr(DuelRun, key) for key in _PROVEN),
            Proof.checkpoint.is_not_distinct_from(DuelRun.checkpoint),
        ),
    )
    return _read(engine, query.order_by(*_OLDEST_FIRST, one.name, other.name, Proof.id), campaign)


_PROVEN = ("workload", "use_case", "precision", "snapshot", "device_fingerprint")


def manifest_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a contender that finished: what its arm asked for, and what was read back of it."""
    columns = (ContenderRun.name, ContenderRun.arm, ContenderRun.framework, ContenderRun.settings)
    query = _select(*_CASE, *columns, ContenderRun.effective)
    query = query.join(ContenderRun, ContenderRun.duel_run == DuelRun.id)
    query = query.where(ContenderRun.status == "ok")
    frame = _read(engine, query.order_by(*_OLDEST_FIRST, ContenderRun.position), campaign)
    manifests = [dict(each.get("manifest", {})) for each in frame["effective"]]
    kept = frame.drop(columns="effective")
    return kept.assign(manifest=pd.Series(manifests, index=frame.index, dtype="object"))


def mark_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a failed expectation; None = of every campaign."""
    query = _select(
        *_CASE,
        CheckMark.contender,
        CheckMark.other,
        CheckMark.suite,
        CheckMark.expectation,
        CheckMark.reason,
        CheckMark.checked_at,
    )
    query = query.join(CheckMark, CheckMark.duel_run == DuelRun.id)
    return _read(engine, query.order_by(*_OLDEST_FIRST, CheckMark.id), campaign)


def ratio_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a pair of a duel run: log(T_b / T_a), its verdict, and whether its sides ran alike
    (`benchcore.store.parity`); None = of every campaign. Trials of our verdicts are not among
    them: their pairs say nothing of a framework."""
    query = _select(
        *_CASE,
        DuelRun.duel_hash,
        DuelRun.node,
        DuelRun.device_model,
        DuelRun.device_fingerprint,
        PairRatio.kind,
        PairRatio.a,
        PairRatio.b,
        PairRatio.a_arm,
        PairRatio.b_arm,
        PairRatio.a_framework,
        PairRatio.b_framework,
        PairRatio.a_version,
        PairRatio.b_version,
        PairRatio.a_role,
        PairRatio.b_role,
        PairRatio.log_ratio,
        PairRatio.low,
        PairRatio.high,
        PairRatio.num_starts,
        PairRatio.start_log_ratios,
        PairRatio.verdict,
        PairRatio.reason,
        PairRatio.scope,
        PairRatio.counts,
        DuelRun.method,
        PairRatio.judged_at,
    )
    query = query.join(PairRatio, PairRatio.duel_run == DuelRun.id)
    query = query.where(NO_TRIAL)
    ratios = _read(engine, query.order_by(*_OLDEST_FIRST, PairRatio.a, PairRatio.b), campaign)
    return add_parity(ratios, read_sides(manifest_frame(engine, campaign)))


def _select(*columns: InstrumentedAttribute[Any] | ColumnElement[Any]) -> Select[Any]:
    return select(*columns).select_from(DuelRun)


def _read(engine: Engine, query: Select[Any], campaign: str | None) -> pd.DataFrame:
    if campaign is not None:
        query = query.where(DuelRun.campaign == campaign)
    columns = {each["name"]: each["type"] for each in query.column_descriptions}
    with Session(engine) as session:
        rows = [tuple(row) for row in session.execute(query)]
    # Each column's type comes from its table, so that an empty frame has the same as a full one.
    types = {name: _column_type(name, kind) for name, kind in columns.items()}
    return pd.DataFrame(rows, columns=list(columns), dtype="object").astype(types)


def _column_type(name: str, kind: TypeEngine[Any]) -> str:
    if isinstance(kind, Boolean):
        return "bool"
    if isinstance(kind, Integer):
        return "float64" if name in _MAY_BE_MISSING else "int64"
    if isinstance(kind, Float):
        return "float64"
    if isinstance(kind, UtcDateTime):
        return "datetime64[us, UTC]"
    return "str" if isinstance(kind, String) else "object"
