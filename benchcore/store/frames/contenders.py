"""Contender runs and their starts as frames: times, memory, energy, shares of the ceilings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pandas as pd
from sqlalchemy import Engine

from benchcore.cell.result.start import STAGES
from benchcore.store.frames.ceilings import add_physics, read_sentinels, read_unlike
from benchcore.store.frames.reading import (
    CASE,
    OLDEST_FIRST,
    Campaigns,
    Runs,
    columns_of,
    list_values,
    read_frame,
    select_columns,
)
from benchcore.store.metric_values import COMPILING, count_operations, sum_compilation
from benchcore.store.metrics import IN_COLUMNS, IN_MEASURED, METRICS, OF_SAMPLES, over_starts
from benchcore.store.models import ContenderRun, DuelRun, StartRun
from benchcore.verdict.duel.latency import host_boundness, summarise_latency
from benchcore.verdict.duel.step_profile import profile_step, step_energy

_CACHES = ("cold", "warm")
_OF_SAMPLES = ("latency_samples", *OF_SAMPLES)
_OF_PASSES = tuple(each.key for each in METRICS if each.of_pass)
_OF_DUEL = (
    *("device_model", "device_fingerprint", "method", "flops_per_step", "least_bytes_per_step"),
    *("device", "host", "stopped_by", "checkpoint", "ended_at", "ingested_at", "passes_of"),
)
_OF_CONTENDER = (
    *("name", "position", "arm", "role", "framework", "version", "environment_key"),
    *("python_version", "build", "status", "stage", "reason", "cause", "cold", "warm"),
)
_NAMED = ("name", "status", *_CACHES)
_OF_AMOUNTS = ("start_index", "caches", "stages", "median_step_ns", "measured", "energy")
"""Columns of a start that the metrics of `amount_frame` need."""
_OF_CONTENDERS = (*_OF_AMOUNTS, "warm_up", "profile", "num_blocks", "num_degraded")
"""Those that the frame of contenders needs."""
_OF_PROFILE = ("program_ops", "host_dispatch_ns")
"""Metrics that need a start's profile, its largest column, too."""
_OF_START = (
    *("start_index", "status", "caches", "compilation", "cache_hits", "stages", "warm_up"),
    *("steps_per_block", "compilations_in_blocks", "num_blocks", "shortest_block_ns"),
    *("clock_resolution_ns", "num_degraded", "unwatched", "median_step_ns", "measured"),
    *("energy", "profile", "inputs_sha256", "seed"),
)
_WHOLE = (
    *CASE,
    DuelRun.num_rounds.label("planned_rounds"),
    *columns_of(ContenderRun, "name", "arm", "framework", "version"),
    ContenderRun.status.label("contender_status"),
    StartRun.started_at.label("start_started_at"),
)
"""What names a start in its own frame."""


def contender_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per contender run; None = of every campaign.

    `median_step_ns` is the median of the starts' medians over the blocks that were not degraded;
    `num_degraded` counts those that were (missing = not counted then), `num_unsteady` the
    starts whose warm-up ended at its limit, before its blocks agreed. A stage's seconds are the
    mean over the starts that reached it. Memory is the largest over starts (it is measured once).
    Latency is that of all starts' samples together, and `host_boundness` its median over
    `median_step_ns`. `cold_compile_s` and `warm_compile_s` are trace, lower and compile together,
    the mean over the starts with empty caches and over those with filled ones; without such
    starts, of a process that was not timed; `items_per_s` is the batch
    over `median_step_ns`. `gross_mj` and `net_mj` are a step's. `compute_share`, `bandwidth_share`
    and `limit_share` compare the fastest start with the ceilings of its device (`ceilings.py`).

    `passes_of` is the earlier duel run whose passes hold, of the campaign `passes_campaign`, begun
    at `passes_at`: its memory, energy and compiled program are then in the row.
    """
    return _add_passes_and_physics(engine, campaign, _read_contenders(engine, campaign)[0])


def run_frames(engine: Engine, campaign: Campaigns = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`contender_frame`, and one row per start without its blocks and latencies. Read together, as
    both need the starts; None = of every campaign."""
    contenders, starts = _read_contenders(engine, campaign, whole_starts=True)
    return _add_passes_and_physics(engine, campaign, contenders), starts


def _add_passes_and_physics(
    engine: Engine, campaign: Campaigns, contenders: pd.DataFrame
) -> pd.DataFrame:
    amounts = _take_earlier_passes(engine, contenders)
    return add_physics(amounts, read_sentinels(engine, campaign), read_unlike(engine, campaign))


def amount_frame(
    engine: Engine, campaign: Campaigns | Runs = None, metrics: Collection[str] | None = None
) -> pd.DataFrame:
    """`contender_frame` without the shares of ceilings. With `metrics`, only the columns of these
    metrics are read."""
    return _take_earlier_passes(engine, _read_contenders(engine, campaign, metrics)[0], metrics)


def _read_contenders(
    engine: Engine,
    campaign: Campaigns | Runs,
    only: Collection[str] | None = None,
    *,
    whole_starts: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame as it was measured, without earlier passes and the shares of ceilings, and that of
    the starts. Without `whole_starts` the latter has only the columns that the first needs. Starts
    are read last: what is stored meanwhile has no contender without its starts."""
    of_duel = _OF_DUEL if only is None else ("passes_of",)
    query = select_columns(
        *CASE,
        *columns_of(DuelRun, *of_duel),
        *columns_of(ContenderRun, *(_OF_CONTENDER if only is None else _NAMED)),
        DuelRun.num_starts.label("planned_starts"),
        DuelRun.num_rounds.label("planned_rounds"),
    )
    query = query.join(ContenderRun)
    contenders = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    starts = _read_starts(engine, campaign, only, whole=whole_starts)
    of_starts = pd.DataFrame(
        {key: make() for key, make in _list_sums(starts).items() if only is None or key in only}
    )
    of_starts = of_starts.join(_summarise_samples(starts.pop("latency_ns"), starts))
    untimed = {each: contenders.pop(each).map(_sum_compilation) for each in _CACHES}
    frame = contenders.join(of_starts, on=["duel_run", "name"])
    for caches, seconds in untimed.items():
        if (key := f"{caches}_compile_s") in frame:
            frame[key] = frame.pop(key).fillna(seconds.astype("float64"))
    if only is not None:
        return _add_rate(frame), starts
    times = zip(frame["latency_p50_ns"], frame["median_step_ns"], strict=True)
    frame["host_boundness"] = pd.Series(
        [host_boundness(*each) for each in times], index=frame.index, dtype="float64"
    )
    counts = ["num_starts", "num_blocks"]
    whole = {each: frame[each].fillna(0).astype("int64") for each in counts}
    return _add_rate(frame).assign(**whole), starts


def _add_rate(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(items_per_s=frame["batch"] / frame["median_step_ns"] * 1e9)


def _list_sums(starts: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """By column of the contenders' frame, what computes it from the starts that were read."""
    per_start = starts.groupby(["duel_run", "name"])

    def compile_with(caches: str) -> Any:
        seconds = starts[[f"{each}_s" for each in COMPILING]].sum(axis=1, min_count=1)
        of_caches = starts.assign(compiled_s=seconds).loc[starts["caches"].eq(caches)]
        return of_caches.groupby(["duel_run", "name"])["compiled_s"].mean()

    return {
        "num_starts": per_start.size,
        "num_blocks": lambda: per_start["num_blocks"].sum(),
        "num_degraded": lambda: per_start["num_degraded"].sum(min_count=1),
        "num_unsteady": lambda: per_start["unsteady"].sum(min_count=1),
        **{key: lambda key=key: per_start[key].mean() for key in _OF_PROFILE},
        "fastest_step_ns": lambda: per_start["median_step_ns"].min(),
        **{f"{each}_s": lambda each=each: per_start[f"{each}_s"].mean() for each in STAGES},
        **{
            key: lambda key=key, how=how: per_start[key].agg(how)
            for key, how in over_starts().items()
        },
        **{f"{each}_compile_s": lambda each=each: compile_with(each) for each in _CACHES},
    }


def _take_earlier_passes(
    engine: Engine, frame: pd.DataFrame, only: Collection[str] | None = None
) -> pd.DataFrame:
    """What passes measure, from the duel run whose passes are valid: of these campaigns, or of
    others, which are read as well."""
    wanted = set(frame["passes_of"].dropna())
    if not wanted:
        return frame.assign(passes_campaign=None, passes_at=pd.NaT)
    measured = frame
    if elsewhere := wanted - set(frame["duel_run"]):
        measured = pd.concat([frame, _read_contenders(engine, Runs(elsewhere), only)[0]])
    keys = list(list_values(frame, "passes_of", "name"))
    earlier = measured.set_index(["duel_run", "name"]).reindex(keys).set_axis(frame.index)
    valid = frame["status"].eq("ok") & earlier["campaign"].notna()
    for key in _OF_PASSES if only is None else (each for each in _OF_PASSES if each in only):
        frame[key] = frame[key].fillna(earlier[key].where(valid))
    campaign = earlier["campaign"].astype("object")
    return frame.assign(
        passes_campaign=campaign.where(valid, None),
        passes_at=earlier["started_at"].where(valid),
    )


def _sum_compilation(untimed: Any) -> float | None:
    return sum_compilation(untimed["stages"]) if isinstance(untimed, dict) else None


def _summarise_samples(latencies_ns: pd.Series, starts: pd.DataFrame) -> pd.DataFrame:
    """Per contender run, by duel run and name: metrics that need the samples of all its starts."""
    groups = defaultdict[tuple[str, str], list[tuple[Any, Any]]](list)
    samples = zip(latencies_ns, starts["energy"], strict=True)
    for key, sample in zip(list_values(starts, "duel_run", "name"), samples, strict=True):
        groups[key].append(sample)
    rows = [_summarise(*zip(*each, strict=True)) for each in groups.values()]
    index = pd.MultiIndex.from_tuples(groups, names=["duel_run", "name"])
    return pd.DataFrame(rows, index=index, columns=list(_OF_SAMPLES), dtype="float64")


def _summarise(latencies: Iterable[Any], energies: Iterable[Any]) -> dict[str, float | None]:
    latency = summarise_latency(list(latencies))
    measured = [energy for each in energies if (energy := step_energy(each))]
    found: dict[str, float | None] = dict.fromkeys(_OF_SAMPLES)
    if latency:
        values = dict(vars(latency))  # `dataclasses.asdict` takes ten times as long
        found["latency_samples"] = values.pop("num_samples")
        found.update({f"latency_{key}": value for key, value in values.items()})
    if measured:
        found.update(vars(measured[-1]))
    return found


def _read_starts(
    engine: Engine, campaign: Campaigns | Runs, only: Collection[str] | None, *, whole: bool
) -> pd.DataFrame:
    """One row per start, with its latencies: whole, or the columns that contenders need; with
    `only` some metrics of contenders, those that these need."""
    profiled = only is None or not set(only).isdisjoint(_OF_PROFILE)
    of_start = _OF_START if whole else _OF_CONTENDERS if only is None else _OF_AMOUNTS
    if only is not None and profiled:
        of_start = (*_OF_AMOUNTS, "warm_up", "profile")
    named = _WHOLE if whole else (DuelRun.id.label("duel_run"), ContenderRun.name)
    query = select_columns(
        *named,
        DuelRun.device["kind"].as_string().label("kind"),
        *columns_of(StartRun, *of_start, *IN_COLUMNS, "latency_ns"),
    )
    query = query.join(ContenderRun).join(StartRun)
    order = (*OLDEST_FIRST, ContenderRun.position, StartRun.start_index)
    frame = read_frame(engine, query.order_by(*order), campaign)
    for stage in STAGES:
        seconds = [stages[stage] for stages in frame["stages"]]
        frame[f"{stage}_s"] = pd.Series(seconds, index=frame.index, dtype="float64")
    if profiled:
        frame = _read_profiles(frame)
    for metric in IN_MEASURED:
        values = [(each or {}).get(metric.measured_key) for each in frame["measured"]]
        frame[metric.key] = pd.Series(values, index=frame.index, dtype="float64")
    return frame.drop(columns=["stages", "measured", "kind"])


def _read_profiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of starts with what it has of the warm-up and of the profile."""
    unsteady = [None if each is None else float(not each["steady"]) for each in frame["warm_up"]]
    operations = [count_operations(each) for each in frame["profile"]]
    profiles = zip(frame["profile"], frame["kind"], strict=True)
    steps = [profile_step(profile, on_gpu=kind == "gpu") for profile, kind in profiles]
    dispatched = [None if each is None else each.dispatch_ns for each in steps]
    found = {"unsteady": unsteady, "program_ops": operations, "host_dispatch_ns": dispatched}
    return frame.drop(columns=["warm_up", "profile"]).assign(
        **{
            name: pd.Series(values, index=frame.index, dtype="float64")
            for name, values in found.items()
        }
    )
