"""The bottleneck of each contender's step, from the stored measurements."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    list_values,
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


Profiles = Mapping[tuple[str, str], list[tuple[float | None, dict[str, Any]]]]
"""By duel run and contender, of each start that was profiled its median step and its profile."""


def read_profiles(engine: Engine, campaign: Campaigns) -> Profiles:
    """The profiles of these campaigns, in the order of the starts. They are the largest column of a
    start, so a caller that needs several of the frames below reads them once."""
    columns = (DuelRun.id, ContenderRun.name, StartRun.median_step_ns, StartRun.profile)
    query = select_columns(*columns).join(ContenderRun).join(StartRun, MEASURED_PASSES)
    query = query.where(StartRun.profile.is_not(None)).order_by(StartRun.start_index)
    found = defaultdict[tuple[str, str], list[tuple[float | None, dict[str, Any]]]](list)
    with engine.connect() as connection:
        for run, name, step_ns, profile in connection.execute(of_campaigns(query, campaign)):
            found[run, name].append((step_ns, profile))
    return found


def profile_frame(
    engine: Engine, campaign: Campaigns = None, profiles: Profiles | None = None
) -> pd.DataFrame:
    """One row per contender run that was profiled: where the time of a step goes.

    The columns are those of `benchcore.verdict.duel.step_profile.StepProfile`, and `longest` (its
    longest kernels), `grad_mode` (what torch saved for a backward pass) and `unlike_graphs` (why
    its CUDA graphs are not those of the manifest, "" = they are). `profiles`: those already read.
    """
    query = select_columns(
        *CASE,
        *columns_of(ContenderRun, "name", "arm", "framework", "version"),
        ContenderRun.effective[("manifest", "graphs")].as_string().label("graphs"),
        DuelRun.device["kind"].as_string().label("kind"),
    )
    query = query.join(ContenderRun).where(ContenderRun.status == "ok")
    ran = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    profiles = read_profiles(engine, campaign) if profiles is None else profiles
    of_each = [profiles.get(each, []) for each in list_values(ran, "duel_run", "name")]
    positions = [position for position, found in enumerate(of_each) for _ in found]
    frame = ran.iloc[positions].reset_index(drop=True)
    graphs, kinds = frame.pop("graphs"), frame.pop("kind")
    times = [step_ns for found in of_each for step_ns, _ in found]
    read = [profile for found in of_each for _, profile in found]
    frame = frame.assign(median_step_ns=pd.Series(times, index=frame.index, dtype="float64"))
    steps = [
        profile_step(profile, on_gpu=kind == "gpu")
        for profile, kind in zip(read, kinds, strict=True)
    ]
    numbers = {
        each.name: pd.Series(
            [getattr(step, each.name) for step in steps], index=frame.index, dtype="float64"
        )
        for each in dataclasses.fields(StepProfile)
    }
    longest = ["; ".join(list_kernels(each, _MOST_NAMED)) for each in read]
    unlike = [
        judge_graphs(profile, framework, None if claimed != claimed else claimed)
        for profile, framework, claimed in zip(read, frame["framework"], graphs, strict=True)
    ]
    modes = [each.get("grad_mode") for each in read]
    words = {"longest": longest, "grad_mode": modes, "unlike_graphs": unlike}
    return frame.assign(
        **numbers,
        **{name: pd.Series(each, index=frame.index, dtype="str") for name, each in words.items()},
    )


def bottleneck_frame(
    engine: Engine,
    campaign: Campaigns = None,
    contenders: pd.DataFrame | None = None,
    profiles: Profiles | None = None,
) -> pd.DataFrame:
    """One row per contender run that ended well: the columns of
    `benchcore.verdict.duel.bottleneck.Bottleneck`, the shares it is judged by, and
    `host_boundness`. Calibration runs are left out. `contenders` and `profiles`: their frame, and
    `read_profiles`, if they were read."""
    if contenders is None:
        contenders = contender_frame(engine, campaign)
    contenders = drop_calibration_runs(contenders)
    ran = contenders.loc[(contenders["status"] == "ok") & (contenders["num_blocks"] > 0)]
    ran = ran.loc[:, [*_NAMED, *_NUMBERS, _TIMED]].reset_index(drop=True)
    profiles = read_profiles(engine, campaign) if profiles is None else profiles
    measured = _read_measured(engine, campaign)
    found = [
        find_bottleneck(_measure(row, measured[key], _find_last(profiles.get(key))))
        for row in ran.to_dict("records")
        for key in [(row["duel_run"], row["name"])]
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


def _find_last(profiles: Sequence[tuple[float | None, dict[str, Any]]] | None) -> Any:
    """The profile of the last start that has one; None = it was not profiled."""
    return profiles[-1][1] if profiles else None


def _read_measured(engine: Engine, campaign: Campaigns) -> dict[tuple[str, str], dict[str, Any]]:
    """By duel run and contender: what the frames leave out."""
    of_duel = ("id", "flops_per_step", "least_bytes_per_step", "device", "host")
    duels = of_campaigns(select_columns(*columns_of(DuelRun, *of_duel)), campaign)
    of_contender = (ContenderRun.duel_run, ContenderRun.name, ContenderRun.settings)
    contenders = of_campaigns(select_columns(*of_contender).join(ContenderRun), campaign)
    with engine.connect() as connection:
        known = {row["id"]: row for row in connection.execute(duels).mappings()}
        return {
            (run, name): {**known[run], "settings": settings}
            for run, name, settings in connection.execute(contenders)
            if run in known  # else another process stored it a moment ago
        }


def _measure(
    row: Mapping[str, Any], measured: Mapping[str, Any], profile: Mapping[str, Any] | None
) -> StepMeasurements:
    on_gpu = measured["device"]["kind"] == "gpu"
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
