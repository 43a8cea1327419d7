"""The waterfall: what each setting gains torch that JAX has by default, one arm after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchcore.environments.version_requests import parse_request
from benchcore.errors import UserError
from benchcore.experiments.compare import MIN_STARTS, CaseFilter, find_case
from benchcore.planning.catalog import load_spec, options_of
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DuelLimits, parse_device
from benchcore.running.plans import draft_plan

_NO_LAYOUT = "not run: nothing convolves, so there is no layout to choose"
_NO_GRAPHS = "not run on this device: CUDA graphs need a GPU"


@dataclass(frozen=True, kw_only=True)
class WaterfallStep:
    """One arm of the waterfall. `left_out` says why it does not run; None = it does."""

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
    request: WaterfallRequest,
    steps: Sequence[WaterfallStep],
    *,
    site: str = "local",
    campaign: str | None = None,
    python: str | None = None,
) -> Plan:
    """One duel of the arms that run, after the device's ceilings. Raises UserError."""
    if not (2 <= request.starts <= 100 and 2 <= request.rounds <= 100):
        raise UserError(
            f"wanted --starts and --rounds from 2 to 100, got {request.starts} and "
            f"{request.rounds}; one start has no interval"
        )
    for wanted, version in (("torch", request.torch), ("jax", request.jax)):
        if parse_request(version).framework != wanted:
            raise UserError(
                f"wanted a version of {wanted} with --{wanted}, got {version!r:.100}; "
                f"write for example --{wanted} {wanted}@newest"
            )
    case = find_case(request.workload, request.case_filter)
    arms = tuple(parse_arm(step.contender) for step in steps if step.left_out is None)
    precision = load_spec(request.workload).cases[case].precision
    limits = DuelLimits(starts=request.starts, rounds=request.rounds)
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
    name = campaign or f"waterfall-{request.workload}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}"
    return draft_plan(profile, site=site, campaign=name.replace("_", "-"), python=python)


def find_duel(plan: Plan) -> PlannedDuel:
    """The waterfall's own duel: the last one."""
    return plan.duels[-1]


def name_arms(steps: Sequence[WaterfallStep], duel: PlannedDuel) -> dict[str, str | None]:
    """Each step's contender by its label; None if it is left out."""
    names = iter([each.name for each in duel.contenders])
    return {step.label: None if step.left_out else next(names) for step in steps}
