"""A sweep: two contenders on several cases that differ in one thing, such as the batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchcore.cell.measure.degraded import leave_out_degraded
from benchcore.errors import UserError
from benchcore.experiments.compare import (
    MIN_STARTS,
    choose_case,
    list_plain_arms,
    orient_ratio,
)
from benchcore.planning.catalog import count_devices, load_spec
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import USUAL, CaseFilter, Placement, parse_arm
from benchcore.protocol import DuelLimits
from benchcore.running.duel_process import result_path
from benchcore.running.plans import draft_named
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.documents import read_document
from benchcore.store.reports.campaign import list_contenders
from benchcore.verdict.duel.crossing import Point, find_crossing
from benchcore.verdict.duel.scaling import Efficiency, StartTimes, judge_efficiency

Varied = Literal["batch", "devices", "size", "models"]
MOST_VALUES = 20
"""The most values of one sweep."""


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """What varies, over which values, between which sides. A side is a version request and its
    settings."""

    workload: str
    case_filter: CaseFilter
    varied: Varied
    values: Sequence[int | str]
    a: Sequence[str]
    b: Sequence[str]
    starts: int = MIN_STARTS
    budget_s: float = 60.0
    device: str = "cpu"


def read_values(varied: Varied, texts: Sequence[str]) -> tuple[int | str, ...]:
    """The values as a person wrote them: names of sizes, and numbers for all else. Raises
    UserError."""
    if varied == "size":
        return tuple(texts)
    if not all(text.isascii() and text.isdigit() and len(text) < 10 for text in texts):
        raise UserError(
            f"wanted numbers as values of {varied}, got {', '.join(texts)[:100]!r}; write for "
            "example 1,8,32"
        )
    return tuple(map(int, texts))


def draft_sweep(
    request: SweepRequest, placement: Placement = USUAL, state: State | None = None
) -> Plan:
    """One duel per value, after the device's ceilings. Raises UserError."""
    _check(request)
    names = [_find_varied(request, value) for value in request.values]
    limits = DuelLimits(
        starts=request.starts,
        compilations=min(MIN_STARTS, request.starts),
        budget_s=request.budget_s,
    )
    arms = tuple(parse_arm(",".join(side)) for side in (request.a, request.b))
    matches = [
        Match(workload=request.workload, case=name, arms=arms, expected_s=request.budget_s)
        for name in names
    ]
    precision = load_spec(request.workload).cases[names[0]].precision
    plain = list_plain_arms(request.a[0], request.b[0])
    sentinels = list_sentinels(
        request.device, precision, plain, limits, besides=(request.workload, names[0])
    )
    profile = Profile(
        name="sweep", matches=(*sentinels, *matches), limits=limits, device=request.device
    )
    return draft_named(profile, f"sweep-{request.workload}", placement, state)


def _find_varied(request: SweepRequest, value: int | str) -> str:
    """The case with this value; where a case is named, the one that is like it in all the rest."""
    workload, varied = request.workload, request.varied
    if request.case_filter.case is None:
        return choose_case(workload, request.case_filter, {varied: value})
    cases, like = load_spec(workload).cases, choose_case(workload, request.case_filter)
    by_value = {
        getattr(each, varied, None): name
        for name, each in reversed(list(cases.items()))
        if dataclasses.replace(each, **_pick(cases[like], varied, each)) == cases[like]
    }
    if value not in by_value:
        raise UserError(
            f"wanted a case like {like!r} with {varied} {value!r:.100}, but {workload} has some "
            f"with {', '.join(map(str, sorted(by_value, key=str)))}; choose these or another --case"
        )
    return by_value[value]


def _pick(like: Any, varied: str, each: Any) -> dict[str, Any]:
    """The value that makes a case equal to another one if they differ in nothing else."""
    return {varied: getattr(like, varied)} if hasattr(each, varied) else {}


def _check(request: SweepRequest) -> None:
    values = request.values
    if not 2 <= len(values) <= MOST_VALUES or len(set(values)) < len(values):
        raise UserError(
            f"wanted 2 to {MOST_VALUES} different values of {request.varied}, got "
            f"{', '.join(map(str, values))[:100]!r}; write for example --batches 1,8,32"
        )
    if not (2 <= request.starts <= 100 and 0 <= request.budget_s <= 1e6):  # nan, too
        raise UserError(
            f"wanted --starts from 2 to 100 and --budget from 0 to 1e+06, got {request.starts} "
            f"and {request.budget_s!r}; write for example --starts 3 --budget 60"
        )


def conclude_sweep(
    plan: Plan, request: SweepRequest, state: State, ratios: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a measured sweep found: one point per value, with both sides and their ratio, a to b.
    A side that failed there has its status in place of numbers."""
    listed = list_contenders(open_database(state.database_url), plan.campaign)
    of_side = {(each["case"], each["name"]): each for each in listed}
    found = {row["duel_run"]: row for row in ratios}
    points = list[dict[str, Any]]()
    duels = plan.duels[-len(request.values) :]
    for value, duel in zip(request.values, duels, strict=True):
        ratio = found.get(duel.duel_run)
        a, b = (of_side.get((duel.title, each.name), {}) for each in duel.contenders)
        points.append(
            {
                "value": value,
                "case": duel.title,
                "a": _measure_side(a),
                "b": _measure_side(b),
                "ratio": None if ratio is None else orient_ratio(ratio, duel.contenders[0].name),
            }
        )
    if request.varied == "devices":
        times = [_read_times(state, plan, each) for each in duels]
        for index, point in enumerate(points):
            for side in ("a", "b"):
                of_side = [each[side] for each in times]
                point[side] |= _measure_efficiency(of_side, index, point[side])
    a, b = (each.name for each in duels[0].contenders)
    return {
        "workload": request.workload,
        "varied": request.varied,
        "names": {"a": a, "b": b},
        "points": points,
        "crossing": _find_crossing(points) if request.varied in _CROSSED else None,
    }


def _find_crossing(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the lead changes sides, of the values whose pair counts and has an interval."""
    known = [
        Point(value=point["value"], **dict(zip(_LOGS, map(math.log, ends), strict=True)))
        for point in points
        if (ratio := point["ratio"]) is not None and ratio["counts"]
        for ends in [[ratio[key] for key in ("speedup", "low", "high")]]
        if all(ends)
    ]
    return dataclasses.asdict(find_crossing(known))


_CROSSED = ("batch", "models")
"""What varies in numbers that can also lie between two measured ones."""
_LOGS = ("log_ratio", "low", "high")


def _read_times(state: State, plan: Plan, duel: PlannedDuel) -> dict[str, StartTimes]:
    """Per side, in each start the median of its undisturbed blocks."""
    path = result_path(state, plan.campaign, duel.duel_run)
    contenders = read_document(path)["contenders"] if path.exists() else ()
    by_name = {each["name"]: each for each in contenders}
    found = {}
    for side, wanted in zip("ab", duel.contenders, strict=True):
        starts = [
            (leave_out_degraded(start["blocks"]), start["compilation"])
            for start in by_name.get(wanted.name, {}).get("starts", ())
        ]
        starts = [(blocks, compilation) for blocks, compilation in starts if blocks]
        found[side] = StartTimes(
            devices=count_devices(duel.workload, duel.case),
            logs=[
                math.log(median(block["elapsed_ns"] / block["steps"] for block in blocks))
                for blocks, _ in starts
            ],
            compilations=[compilation for _, compilation in starts],
        )
    return found


def _measure_efficiency(
    of_side: Sequence[StartTimes], index: int, side: Mapping[str, Any]
) -> dict[str, Any]:
    """The efficiency of a side at a value, against the fewest devices; empty if it failed there."""
    fewest = min(of_side, key=lambda each: each.devices)
    found: Efficiency | None = judge_efficiency(fewest, of_side[index])
    if found is None or of_side[index] is fewest or side["status"] != "ok":
        return dict.fromkeys(_EFFICIENCY)
    return dict(zip(_EFFICIENCY, (found.share, found.low, found.high), strict=True))


_EFFICIENCY = ("efficiency", "efficiency_low", "efficiency_high")
_MEASURED = (
    *("median_step_ns", "items_per_s", "process_peak_bytes", "allocator_peak_bytes"),
    *("cold_compile_s", "new_shape_s", "after_new_shapes"),
)


def _measure_side(row: Mapping[str, Any]) -> dict[str, Any]:
    measured = {key: row.get(key) for key in _MEASURED}
    return {"status": row.get("status", "not measured"), **measured}


def is_measured(found: Mapping[str, Any]) -> bool:
    """Whether both sides have a time at any value."""
    return any(
        point["ratio"] is not None and point["ratio"]["speedup"] is not None
        for point in found["points"]
    )


def list_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curve as a flat table, one row per value, as a CSV file has it."""
    return [
        {
            found["varied"]: point["value"],
            "case": point["case"],
            **{f"{side}_{key}": value for side in ("a", "b") for key, value in point[side].items()},
            **(point["ratio"] or dict.fromkeys(_RATIO)),
        }
        for point in found["points"]
    ]


_RATIO = ("speedup", "low", "high", "verdict", "reason", "scope", "counts", "num_starts")
