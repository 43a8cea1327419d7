"""Options that several commands share: each has one name, one meaning and one help text.

A command writes `state: options.State = options.STATE`. `expand_groups` replaces an argument of the
type `CaseFilter` or `Placement` by that group's options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore import variables
from benchcore.errors import UserError
from benchcore.planning.requests import CaseFilter, Placement, format_settings
from benchcore.protocol import COMPARED


def option(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    """Typer's option, with the placeholder of its value and its help."""
    return typer.Option(name, metavar=metavar, help=text, **more)


def argument(metavar: str, text: str) -> Any:
    """Typer's argument, with its placeholder and its help."""
    return typer.Argument(metavar=metavar, help=text)


def _check_python(given: str | None) -> str | None:
    """Before a server or an environment is started for it."""
    if given is not None:
        from benchcore.environments.version_requests import check_python  # `--help` needs none

        check_python(given)
    return given


def _check_campaign(given: str | None) -> str | None:
    """Also an empty name, such as that of an unset variable of a script."""
    if given is not None:
        from benchcore.planning.matrix import check_campaign_name  # `--help` needs none

        check_campaign_name(given)
    return given


def check_framework(framework: str) -> None:
    """Raise UserError if it is not one whose releases are measured."""
    if framework not in COMPARED:
        raise UserError(f"wanted jax or torch, got {framework!r:.100}; name one")


STATE = Path("state")
State = Annotated[
    Path,
    option(
        "--state",
        "FOLDER",
        "Keep environments, results and the dashboard in this folder.",
        envvar=variables.STATE.name,
    ),
]
Json = Annotated[bool, option("--json", None, "Print JSON instead of tables.")]
Profile = Annotated[
    str,
    option(
        "--profile", "NAME", "Use this profile: laptop, ci, h100, seed0, breadth, history, smoke."
    ),
]
_LIMITS = "Take rounds, block length and probes from this profile, such as laptop or h100."
Limits = Annotated[str, option("--profile", "NAME", _LIMITS)]
Site = Annotated[
    str, option("--site", "NAME", "Run on this site: local, slurm-local or one of yours.")
]
_SITE_OF_POOL = "Print for this site: slurm-local or one of yours."
SiteOfPool = Annotated[str, option("--site", "NAME", _SITE_OF_POOL)]
_POOL_OF_SITE = "Print for this pool of the site (default: the site's)."
PoolOfSite = Annotated[str | None, option("--pool", "NAME", _POOL_OF_SITE)]
Pool = Annotated[
    str | None, option("--pool", "NAME", "Submit to this pool of the site (default: the site's).")
]
_NAME = "Name the campaign; an existing name resumes it (default: "


def campaign_option(default: str) -> Any:
    """The option --campaign of a command, with what its default is."""
    return option("--campaign", "NAME", f"{_NAME}{default}).", callback=_check_campaign)


Campaign = Annotated[str | None, campaign_option("a new name")]
Night = Annotated[str | None, campaign_option("nightly-PROFILE-DATE, UTC")]
_PYTHON = "Build environments on this Python, such as 3.12 (default: the newest supported)."
Python = Annotated[str | None, option("--python", "VERSION", _PYTHON, callback=_check_python)]
Device = Annotated[str, option("--device", "NAME", "Measure on cpu, cuda, cuda:N or tpu.")]
_BOUND = "Count a change below this share as none: 0.01 is 1 %."
Bound = Annotated[float, option("--bound", "RATIO", _BOUND, min=0.001, max=0.5)]
_CEILINGS = (
    "Measure the device's ceilings (matmul, copy; 1 to 2 minutes). Without ceilings from this "
    "campaign or the last 30 days no pair counts."
)
Ceilings = Annotated[bool, option("--ceilings/--no-ceilings", None, _CEILINGS)]
_CASE = "Choose this case (default: the one that the options below leave, such as --batch)."
Case = Annotated[str | None, option("--case", "NAME", _CASE)]
UseCase = Annotated[
    str | None,
    option(
        "--use-case",
        "NAME",
        "Choose the case of this kind: infer, train, gradient, per_sample_grad or op.",
    ),
]
Batch = Annotated[int | None, option("--batch", "SIZE", "Choose the case with this batch size.")]
_PRECISION = "Choose the case in this precision (default fp32_ieee)."
Precision = Annotated[str | None, option("--precision", "NAME", _PRECISION)]
_DEVICES = "Choose the case on this many devices (default 1)."
Devices = Annotated[int | None, option("--devices", "COUNT", _DEVICES)]
_CHECKPOINT = (
    "Load both sides' weights from a torchvision state dict, .safetensors or .pth (default: seeded "
    "weights)."
)
Checkpoint = Annotated[Path | None, option("--checkpoint", "FILE", _CHECKPOINT)]
SideA = Annotated[str, option("--a", "VERSION", "Measure this as a: jax, torch, jax==0.10.1, ...")]
SideB = Annotated[str, option("--b", "VERSION", "Measure this as b, written as --a.")]
_SET = f"Change a setting of a, such as compile=none; repeat for more. {format_settings()}"
SetA = Annotated[list[str] | None, option("--a-set", "KEY=VALUE", _SET)]
SetB = Annotated[
    list[str] | None, option("--b-set", "KEY=VALUE", "Change a setting of b, written as --a-set.")
]
Workload = Annotated[str, argument("WORKLOAD", "Name of the workload.")]
_METRIC = "Choose this metric, such as cold_compile_s or process_peak_bytes (default: all)."
Metric = Annotated[str | None, option("--metric", "NAME", _METRIC)]
_LOOKS = "Judge after this many starts; repeat for more looks (default 5, 8, 12)."
_WAIT = "Wait for a quiet machine, at most this long (site local)."
Wait = Annotated[float, option("--wait", "SECONDS", _WAIT, min=0.0, max=86400.0)]
_HOURS = (
    "Measure only what fits into this many hours on one device, the most valuable duels first "
    "(default: no limit)."
)
Hours = Annotated[float | None, option("--hours", "NUMBER", _HOURS, min=0.01, max=1000.0)]
Looks = Annotated[list[int] | None, option("--looks", "COUNT", _LOOKS)]
_STARTS = "Start the contenders this many times."
Starts = Annotated[int, option("--starts", "COUNT", _STARTS)]
StartsFrom1 = Annotated[int, option("--starts", "COUNT", _STARTS, min=1, max=100)]
StartsFrom2 = Annotated[int, option("--starts", "COUNT", _STARTS, min=2, max=100)]
_COMPILATIONS = (
    "Compile with empty caches in this many starts; later starts reuse them. 1 is cheapest, but "
    "then the interval does not cover what another compilation would change."
)
Compilations = Annotated[int, option("--compilations", "COUNT", _COMPILATIONS, min=1, max=100)]
_ROUNDS = "Measure this many rounds per start."
Rounds = Annotated[int, option("--rounds", "COUNT", _ROUNDS)]
RoundsFrom2 = Annotated[int, option("--rounds", "COUNT", _ROUNDS, min=2, max=100)]
Jax = Annotated[str, option("--jax", "VERSION", "Use this JAX: jax, jax==0.10.1, ...")]
Torch = Annotated[str, option("--torch", "VERSION", "Use this PyTorch: torch, torch==2.15.0, ...")]
_GROUPS: Mapping[type, Mapping[str, Any]] = {
    CaseFilter: {
        "case": Case,
        "use_case": UseCase,
        "batch": Batch,
        "precision": Precision,
        "devices": Devices,
    },
    Placement: {"site": Site, "pool": Pool, "campaign": Campaign, "python": Python},
}


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of a group in place of each argument of the group's type."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        each.name: each.annotation
        for each in signature.parameters.values()
        if each.annotation in _GROUPS
    }

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each: given.pop(each) for each in _GROUPS[group]})
        command(**given)

    options = list[inspect.Parameter]()
    for each in signature.parameters.values():
        if each.name not in groups:
            options.append(each)
            continue
        for name, kind in _GROUPS[groups[each.name]].items():
            options.append(
                each.replace(name=name, annotation=kind, default=getattr(each.default, name))
            )
    call.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    return call
