"""The waterfall: what each setting gains torch that JAX has by default, one arm after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchcore.device_names import parse_device
from benchcore.errors import UserError
from benchcore.experiments.compare import MIN_STARTS, check_frameworks, choose_case
from benchcore.planning.catalog import load_spec, options_of
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import USUAL, CaseFilter, Placement, parse_arm
from benchcore.protocol import DuelLimits
from benchcore.running.plans import draft_named
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.profiles import list_bottlenecks
from benchcore.store.reports.waterfalls import read_waterfall

_NO_LAYOUT = "not run: nothing convolves, so there is no layout to choose"
_NO_GRAPHS = "not run on this device: CUDA graphs need a GPU"


@dataclass(frozen=True, kw_only=True)
class WaterfallStep:
    """One arm of the waterfall. `left_out` is why it does not run; None = it does."""

    label: str
    contender: str
    left_out: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaterfallRequest:
    """The case, the versions, and how long to measure."""

    workload: str
    case_filter: CaseFilter
    torch: str = "torch"
    jax: str = "jax"
    starts: int = MIN_STARTS
    compilations: int = 3
    rounds: int = 10
    device: str = "cpu"


def list_steps(request: WaterfallRequest) -> tuple[WaterfallStep, ...]:
    """eager, channels_last, compile, graphs, and JAX last; each adds to the settings before it."""
    convolves = "layout" in options_of(request.workload, "torch")
    layout = ",layout=channels_last" if convolves else ""
    on_cpu = parse_device(request.device).kind == "cpu"
    return (
        WaterfallStep(label="eager", contender=f"{request.torch},compile=none"),
        WaterfallStep(
            label="channels_last",
            contender=f"{request.torch},compile=none,layout=channels_last",
            left_out=None if convolves else _NO_LAYOUT,
        ),
        WaterfallStep(label="compile", contender=f"{request.torch},compile=default{layout}"),
        WaterfallStep(
            label="graphs",
            contender=f"{request.torch},compile=reduce-overhead{layout}",
            left_out=_NO_GRAPHS if on_cpu else None,
        ),
        WaterfallStep(label="JAX", contender=request.jax),
    )


def draft_waterfall(
    request: WaterfallRequest, steps: Sequence[WaterfallStep], placement: Placement = USUAL
) -> Plan:
    """One duel of the arms that run, after the device's ceilings. Raises UserError."""
    if not (2 <= request.starts <= 100 and 2 <= request.rounds <= 100):
        raise UserError(
            f"wanted --starts and --rounds from 2 to 100, got {request.starts} and "
            f"{request.rounds}; choose both from 2 to 100"
        )
    check_frameworks(request.jax, request.torch)
    case = choose_case(request.workload, request.case_filter)
    arms = tuple(parse_arm(step.contender) for step in steps if step.left_out is None)
    precision = load_spec(request.workload).cases[case].precision
    limits = DuelLimits(
        starts=request.starts, rounds=request.rounds, compilations=request.compilations
    )
    match = Match(
        workload=request.workload,
        case=case,
        arms=arms,
        expected_s=60.0 * request.starts,
        limits=dataclasses.replace(limits, budget_s=0.0),
    )
    profile = Profile(
        name="waterfall",
        matches=(*list_sentinels(request.device, precision, (arms[0], arms[-1]), limits), match),
        limits=limits,
        device=request.device,
    )
    return draft_named(profile, f"waterfall-{request.workload}", placement)


def conclude_waterfall(plan: Plan, steps: Sequence[WaterfallStep], state: State) -> dict[str, Any]:
    """What a measured waterfall found: each arm with what it gains, also those left out, the whole,
    and what limits each step."""
    engine, duel = open_database(state.database_url), plan.duels[-1]
    names = iter([each.name for each in duel.contenders])
    arms = {step.label: None if step.left_out else next(names) for step in steps}
    found = read_waterfall(engine, plan.campaign, duel.duel_run, arms)
    for arm, step in zip(found["arms"], steps, strict=True):
        arm["reason"] = step.left_out or arm["reason"]
    return {**found, "why": list_bottlenecks(engine, plan.campaign, duel.duel_run)}
