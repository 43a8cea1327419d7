"""A campaign of one duel, from what a user names on the command line or in a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchcore.campaign import draft_plan
from benchcore.catalog import check_case, load_spec
from benchcore.errors import UserError
from benchcore.matrix import Plan
from benchcore.profiles import Match, Profile
from benchcore.releases import parse_request
from benchcore.tracks import Arm
from benchcore.workloads.settings import (
    JAX_COMPILE,
    JAX_OPTIONS,
    TORCH_COMPILE,
    TORCH_IMAGE_OPTIONS,
    Options,
)

_OPTIONS: Mapping[str, Options] = {
    "jax": {"compile": JAX_COMPILE, **JAX_OPTIONS},
    "torch": {"compile": TORCH_COMPILE, **TORCH_IMAGE_OPTIONS},
    "stdlib": {"compile": ("none",)},
}
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
    device: str = "cpu"


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
    profile = Profile(name="adhoc", matches=(match,), starts=asked.starts, device=asked.device)
    name = campaign or f"run-{workload}-{datetime.now(UTC):%Y%m%dt%H%M%S}"
    return draft_plan(profile, site=site, campaign=name.replace("_", "-"), python=python)


def parse_arm(text: str) -> Arm:
    """`REQUEST[,KEY=VALUE]...` as an arm. Raises UserError on an unknown key or value."""
    request, *settings = text.split(",")
    framework = parse_request(request).framework
    options = _OPTIONS[framework]
    chosen, named = {"compile": _DEFAULT_MODE[framework]}, set[str]()
    for setting in settings:
        key, _, value = setting.partition("=")
        if value not in options.get(key, ()):
            raise UserError(
                f"wanted settings of {_tell_options(options)} after {request!r}, got "
                f"{setting[:100]!r}{_NO_SETTINGS.get(key, '')}; "
                f"write for example {request},compile={chosen['compile']}"
            )
        if key in named:
            raise UserError(f"wanted {key!r} of {request!r} once, got it again; leave one out")
        named.add(key)
        chosen[key] = value
    return Arm(name=name_arm(framework, chosen), request=request, settings=chosen)


_NO_SETTINGS = {
    "precision": " (precision is part of the case: both sides have it)",
    "batch": " (batch is part of the case: both sides have it)",
    "threads": " (threads are the harness's: both sides get every CPU they may use)",
    "device": " (the device is the duel's: both sides run on it)",
}


def list_settings() -> list[str]:
    """Every setting of either framework that does not go without saying, as `KEY=VALUE`."""
    usual = {f"compile={mode}" for mode in _DEFAULT_MODE.values() if mode != "none"}
    listed = [
        f"{key}={value}"
        for framework in ("jax", "torch")
        for key, values in _OPTIONS[framework].items()
        for value in (values if key == "compile" else values[1:])
    ]
    return [each for each in dict.fromkeys(listed) if each not in usual]


def tell_settings() -> str:
    """Every setting of an arm with its values, the one that goes without saying first."""
    return ". ".join(f"{each}: {_tell_options(_OPTIONS[each])}" for each in ("jax", "torch"))


def _tell_options(options: Options) -> str:
    return "; ".join(f"{key}={'|'.join(values)}" for key, values in options.items())


def name_arm(framework: str, settings: Mapping[str, str]) -> str:
    """The arm's name: how it compiles, and whatever is not as it goes without saying."""
    mode = settings["compile"]
    special = {"jit": "jax-jit", "default": "torch-compile", "none": "torch-eager"}
    name = "stdlib" if framework == "stdlib" else special.get(mode, f"torch-compile-{mode}")
    for key, values in _OPTIONS[framework].items():
        value = settings.get(key, values[0])
        if key != "compile" and value != values[0]:
            name += "-" + _WORDS.get((key, value), f"{key}-{value}").replace("_", "-")
    return name


_WORDS = {
    ("donate", "no"): "no-donation",
    ("command_buffers", "off"): "no-command-buffers",
    ("layout", "channels_last"): "channels-last",
    ("cudnn_benchmark", "on"): "cudnn-benchmark",
}
