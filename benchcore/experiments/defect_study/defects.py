"""A defect study: duels of the fair pair and of sides that are wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchcore.experiments.compare import check_frameworks, choose_case
from benchcore.experiments.defect_study.summary import summarise_study
from benchcore.experiments.defect_study.switches import (
    Settings,
    Switch,
    can_run,
    fill_in_settings,
    list_corrections,
    list_switches,
    name_side,
)
from benchcore.planning.catalog import load_spec
from benchcore.planning.matrix import Plan, check_device
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import USUAL, CaseFilter, Placement
from benchcore.planning.tracks import Arm
from benchcore.protocol import COMPARED, DEFECT_TRACK, DuelLimits
from benchcore.running.duel_process import result_path
from benchcore.running.plans import draft_named
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.documents import read_document

_MOST_IN_DUEL = 8
"""Contenders: all of a duel are in memory at once."""


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """Which defects to run on which case. No names = all that the case and the device support."""

    workload: str
    case_filter: CaseFilter
    switches: Sequence[str] = ()
    jax: str = "jax"
    torch: str = "torch"
    starts: int = 3
    rounds: int = 8
    ceilings: bool = True
    """Whether the device's ceilings are measured too, so that physics can be judged."""
    device: str = "cpu"


def draft_study(request: StudyRequest, placement: Placement = USUAL) -> Plan:
    """The plan of a study with today's versions: ceilings, and duels of the fair pair and of some
    wrong sides each. Raises UserError."""
    check_device(request.device)
    check_frameworks(request.jax, request.torch)
    case_name = choose_case(request.workload, request.case_filter)
    case = load_spec(request.workload).cases[case_name]
    switches = list_switches(request.workload, case.use_case, request.switches)
    runnable = [each for each in switches if can_run(each, request.device)]
    matches = [
        Match(
            workload=request.workload,
            case=case_name,
            arms=arms,
            expected_s=20.0 * len(arms) * request.starts,
            limits=DuelLimits(starts=request.starts, rounds=request.rounds, compilations=1),
            track=DEFECT_TRACK,
        )
        for arms in _list_arms(request, runnable)
    ]
    if any("in tf32" in each.readings.values() for each in runnable):
        matches += _list_tf32(request, matches[0])
    if request.ceilings:
        plain = (
            Arm(name="jax-jit", request=request.jax, settings={"compile": "jit"}),
            Arm(name="torch-eager", request=request.torch, settings={"compile": "none"}),
        )
        matches = [*list_sentinels(request.device, case.precision, plain, DuelLimits()), *matches]
    profile = Profile(name="defects", matches=tuple(matches), device=request.device)
    return draft_named(profile, f"defects-{request.workload}", placement)


def _list_arms(request: StudyRequest, runnable: Sequence[Switch]) -> list[tuple[Arm, ...]]:
    """The arms of each duel, the fair pair first. Every wrong pair is in a duel with it. No side is
    twice in a duel, even if several switches use it."""
    wanted = [each.settings for each in runnable]
    if not request.switches:
        wanted += [correction.settings for correction in list_corrections(runnable)]
    fair = _pair_up(request, {})
    duels = [dict(fair)]
    for pair in (_pair_up(request, each) for each in wanted):
        if any(pair.keys() <= each.keys() for each in duels):
            continue
        if len(duels[-1] | pair) > _MOST_IN_DUEL:
            duels.append(dict(fair))
        duels[-1] |= pair
    return [tuple(each.values()) for each in duels]


def _pair_up(request: StudyRequest, settings: Settings) -> dict[str, Arm]:
    """Both sides with these settings, by the arm's name."""
    requests = {"jax": request.jax, "torch": request.torch}
    found: dict[str, Arm] = {}
    for side in COMPARED:
        settled = fill_in_settings(settings, side, request.device)
        name = name_side(side, settled)
        found[name] = Arm(name=name, request=requests[side], settings=settled)
    return found


def _list_tf32(request: StudyRequest, study: Match) -> list[Match]:
    """JAX on the same case in TF32, if there is one. Not run on a GPU."""
    cases = load_spec(request.workload).cases
    same = [
        name
        for name, case in cases.items()
        if dataclasses.replace(case, precision="fp32_ieee") == cases[study.case]
        and case.precision == "tf32"
    ]
    arm = Arm(
        name="jax-jit", request=request.jax, settings=fill_in_settings({}, "jax", request.device)
    )
    return [dataclasses.replace(study, case=each, arms=(arm,), expected_s=60.0) for each in same]


def conclude_study(plan: Plan, state: State, switches: Sequence[str] = ()) -> dict[str, Any]:
    """What a measured study found, as `summarise_study` describes it. No switches = all."""
    engine = open_database(state.database_url)
    frames = (
        each(engine, plan.campaign) for each in (ratio_frame, failed_check_frame, contender_frame)
    )
    ratios, failed_checks, contenders = (frame.to_dict("records") for frame in frames)
    documents = [
        read_document(result_path(state, plan.campaign, duel.duel_run)) for duel in plan.duels
    ]
    return summarise_study(documents, ratios, failed_checks, contenders, switches)
