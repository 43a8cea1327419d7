"""The bottleneck of each contender's step, from the stored measurements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from sqlalchemy import Engine, and_, func

from benchcore.protocol import name_case
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.reading import (
    CASE,
    OLDEST_FIRST,
    Campaigns,
    columns_of,
    drop_calibration_runs,
    of_campaigns,
    read_frame,
    select_columns,
)
from benchcore.store.models import ContenderRun, DuelRun, StartRun
from benchcore.verdict.duel.bottleneck import Bottleneck, StepMeasurements, find_bottleneck
from benchcore.verdict.duel.step_profile import (
    StepProfile,
    judge_graphs,
    list_kernels,
    profile_step,
    time_inputs,
)

_KEYS = ["duel_run", "name"]
_NAMED = (
    *("campaign", "duel_run", "workload", "case_name", "use_case", "batch", "precision", "track"),
    *("name", "arm", "framework", "version"),
)
_TIMED = "median_step_ns"
_NUMBERS = ("compute_share", "bandwidth_share", "host_boundness")
_FOUND = tuple(each.name for each in dataclasses.fields(Bottleneck))
_WORDS = ("bottleneck", "reason", "advice")
_OF_STEP = ("kernel_ns", "dispatch_ns", "num_kernels", "host_syncs", "host_copies")
_MOST_NAMED = 3
MEASURED_PASSES = and_(
    StartRun.duel_run == func.coalesce(DuelRun.passes_of, DuelRun.id),
    StartRun.contender == ContenderRun.name,
)
"""The starts whose passes hold for a duel run: its own, or an earlier one's."""


def profile_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per contender run that was profiled: where the time of a step goes.

    The columns of `benchcore.verdict.duel.step_profile.StepProfile`, `longest`, its longest
    kernels, `grad_mode`, what torch saved for a backward pass, and `unlike_graphs`, why its CUDA
    graphs are not those of the manifest ("" = they are).
    """
    columns = columns_of(ContenderRun, "name", "arm", "framework", "version", "effective")
    query = select_columns(
        *CASE, *columns, DuelRun.device, StartRun.median_step_ns, StartRun.profile
    )
    query = query.join(ContenderRun).join(StartRun, MEASURED_PASSES)
    query = query.where(StartRun.profile.is_not(None), ContenderRun.status == "ok")
    frame = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    pairs = zip(frame["profile"], frame["device"], strict=True)
    steps = [profile_step(profile, on_gpu=device["kind"] == "gpu") for profile, device in pairs]
    numbers = {
        each.name: pd.Series(
            [getattr(step, each.name) for step in steps], index=frame.index, dtype="float64"
        )
        for each in dataclasses.fields(StepProfile)
    }
    longest = ["; ".join(list_kernels(each, _MOST_NAMED)) for each in frame["profile"]]
    kept = frame.drop(columns=["profile", "device", "effective"]).assign(**numbers)
    graphs = [
        judge_graphs(
            row["profile"], row["framework"], row["effective"].get("manifest", {}).get("graphs")
        )
        for row in frame.to_dict("records")
    ]
    modes = [each.get("grad_mode") for each in frame["profile"]]
    words = {"longest": longest, "grad_mode": modes, "unlike_graphs": graphs}
    return kept.assign(
        **{name: pd.Series(each, index=frame.index, dtype="str") for name, each in words.items()}
    )


def bottleneck_frame(
    engine: Engine, campaign: Campaigns = None, contenders: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per contender run that ended well: the columns of
    `benchcore.verdict.duel.bottleneck.Bottleneck`, the shares it is judged by, and
    `host_boundness`. Calibration runs are left out. `contenders`: their frame, if it was read."""
    if contenders is None:
        contenders = contender_frame(engine, campaign)
    contenders = drop_calibration_runs(contenders)
    ran = contenders.loc[(contenders["status"] == "ok") & (contenders["num_blocks"] > 0)]
    ran = ran.loc[:, [*_NAMED, *_NUMBERS, _TIMED]].reset_index(drop=True)
    measured = _read_measured(engine, campaign)
    found = [
        find_bottleneck(_measure(row, measured[row["duel_run"], row["name"]]))
        for row in ran.to_dict("records")
    ]
    columns = {name: [getattr(each, name) for each in found] for name in _FOUND}
    return ran.drop(columns=_TIMED).assign(
        **{
            name: pd.Series(values, index=ran.index, dtype="str" if name in _WORDS else "float64")
            for name, values in columns.items()
        }
    )


def list_bottlenecks(
    engine: Engine, campaign: str, duel_run: str | None = None
) -> list[dict[str, Any]]:
    """`bottleneck_frame` as rows to print, of one duel run or (None) all; None = not known."""
    columns = [each for each in (*_NUMBERS, *_FOUND) if each not in _WORDS]
    return [
        {
            "case": name_case(row["workload"], row["case_name"]),
            **{key: row[key] for key in ("duel_run", "track", "name", *_WORDS)},
            **{key: None if math.isnan(row[key]) else row[key] for key in columns},
        }
        for row in bottleneck_frame(engine, campaign).to_dict("records")
        if duel_run in (None, row["duel_run"])
    ]


def _read_measured(engine: Engine, campaign: Campaigns) -> dict[tuple[str, str], dict[str, Any]]:
    """By duel run and contender: what the frames leave out. The profile is of one start."""
    query = (
        select_columns(
            *columns_of(DuelRun, "id", "flops_per_step", "least_bytes_per_step", "device", "host"),
            *(ContenderRun.name, ContenderRun.settings, StartRun.profile),
        )
        .join(ContenderRun)
        .join(StartRun, MEASURED_PASSES, isouter=True)
        .order_by(StartRun.start_index)
    )
    query = of_campaigns(query, campaign)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with engine.connect() as connection:
        for row in connection.execute(query).mappings():
            key = row["id"], row["name"]
            profile = row["profile"] or found.get(key, {}).get("profile")
            found[key] = {**row, "profile": profile}
    return found


def _measure(row: Mapping[str, Any], measured: Mapping[str, Any]) -> StepMeasurements:
    on_gpu = measured["device"]["kind"] == "gpu"
    profile: Mapping[str, Any] | None = measured["profile"]
    step: StepProfile | None = profile_step(profile, on_gpu=on_gpu)
    shares = {key: row[key] for key in ("compute_share", "bandwidth_share")}
    return StepMeasurements(
        framework=row["framework"],
        settings=measured["settings"],
        on_gpu=on_gpu,
        timed=not math.isnan(row[_TIMED]),
        flops=measured["flops_per_step"],
        least_bytes=measured["least_bytes_per_step"],
        cache_bytes=None if on_gpu else measured["host"].get("cache_bytes"),
        **{key: None if math.isnan(share) else share for key, share in shares.items()},
        **{key: getattr(step, key) for key in _OF_STEP if step is not None},
        input_ns=time_inputs(profile),
        program_bytes=((profile or {}).get("program") or {}).get("bytes"),
    )
