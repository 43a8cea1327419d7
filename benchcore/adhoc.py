"""A campaign of one duel, from what a user names on the command line or in a form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchcore.campaign import draft_plan
from benchcore.catalog import check_case, load_spec
from benchcore.errors import UserError
from benchcore.matrix import Plan
from benchcore.profiles import Arm, Match, Profile
from benchcore.releases import parse_request
from benchcore.workloads.settings import JAX_COMPILE, TORCH_COMPILE

_MODES = {"jax": JAX_COMPILE, "torch": TORCH_COMPILE, "stdlib": ("none",)}
_DEFAULT_MODE = {"jax": "jit", "torch": "default", "stdlib": "none"}
_EXPECTED_S = 60.0


@dataclass(frozen=True, kw_only=True)
class AdhocDuel:
    """What a user asked for. A contender is a version request, and settings after commas:
    `torch==2.15.0,compile=none`."""

    workload: str
    case: str | None
    contenders: Sequence[str]
    starts: int = 3


def draft_duel(
    asked: AdhocDuel,
    *,
    site: str = "local",
    campaign: str | None = None,
    python: str | None = None,
) -> Plan:
    """The plan of one duel with today's versions. Raises UserError."""
    workload, case = asked.workload, asked.case
    cases = load_spec(workload).CASES
    if case is None:
        raise UserError(
            f"wanted a case of {workload!r}, got none; cases are {', '.join(cases)}; "
            "name one with --case"
        )
    check_case(workload, case)
    if not asked.contenders:
        raise UserError(
            "wanted contenders, got none; name two with --contender jax --contender torch"
        )
    arms = tuple(parse_arm(text) for text in asked.contenders)
    match = Match(workload=workload, case=case, arms=arms, expected_s=_EXPECTED_S)
    profile = Profile(name="adhoc", matches=(match,), starts=asked.starts)
    name = campaign or f"run-{workload}-{datetime.now(UTC):%Y%m%dt%H%M%S}"
    return draft_plan(profile, site=site, campaign=name.replace("_", "-"), python=python)


def parse_arm(text: str) -> Arm:
    """`REQUEST[,compile=MODE]` as an arm. Raises UserError on an unknown setting or mode."""
    request, *settings = text.split(",")
    framework = parse_request(request).framework
    mode = _DEFAULT_MODE[framework]
    for setting in settings:
        match = re.fullmatch(r"compile=([a-z-]+)", setting)
        if match is None or match[1] not in _MODES[framework]:
            raise UserError(
                f"wanted compile=MODE with a mode of {', '.join(_MODES[framework])} after "
                f"{request!r}, got {setting[:100]!r}; write for example {request},compile={mode}"
            )
        mode = match[1]
    name = {"stdlib": "stdlib", "jax": "jax-jit"}.get(framework, _name_torch(mode))
    return Arm(name=name, request=request, settings={"compile": mode})


def _name_torch(mode: str) -> str:
    special = {"none": "torch-eager", "default": "torch-compile"}
    return special.get(mode, f"torch-compile-{mode}")
