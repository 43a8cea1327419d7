"""What users write: contenders, as a version request with settings after commas, which case they
mean, and where a campaign runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchcore.environments.version_requests import parse_request
from benchcore.errors import UserError
from benchcore.planning.tracks import JAX_EAGER as EAGER_ARM
from benchcore.planning.tracks import TRACKS, Arm
from benchcore.protocol import COMPARED
from benchcore.workloads.settings import (
    AGGREGATE,
    BATCHING,
    JAX_ATTENTION,
    JAX_EAGER,
    JAX_KERNEL,
    JAX_OPTIONS,
    JAX_PER_SAMPLE,
    JAX_PROCESSES,
    STRATEGY,
    TORCH_ATTENTION,
    TORCH_COMPILE,
    TORCH_IMAGE_OPTIONS,
    TORCH_IMAGE_PER_SAMPLE,
    TORCH_KERNEL,
    TORCH_MODEL,
    TORCH_SHAPES,
    Options,
)

_OPTIONS: Mapping[str, Options] = {
    "jax": {
        **JAX_EAGER,
        **JAX_OPTIONS,
        **JAX_ATTENTION,
        **JAX_PER_SAMPLE,
        **BATCHING,
        **JAX_KERNEL,
        **AGGREGATE,
        **STRATEGY,
        **JAX_PROCESSES,
    },
    "torch": {
        "compile": TORCH_COMPILE,
        **TORCH_IMAGE_OPTIONS,
        **TORCH_ATTENTION,
        **TORCH_IMAGE_PER_SAMPLE,
        **BATCHING,
        **TORCH_KERNEL,
        **AGGREGATE,
        **STRATEGY,
        **TORCH_SHAPES,
        **TORCH_MODEL,
    },
    "stdlib": {"compile": ("none",)},
}
_DEFAULT_MODE = {"jax": "jit", "torch": "default", "stdlib": "none"}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a campaign is measured, under which name, and on which Python. None: the usual."""

    site: str = "local"
    pool: str | None = None
    campaign: str | None = None
    python: str | None = None


USUAL = Placement()


@dataclass(frozen=True, kw_only=True)
class CaseFilter:
    """The case that a user means, by name or by properties."""

    case: str | None = None
    use_case: str | None = None
    batch: int | None = None
    precision: str | None = None
    devices: int | None = None


ANY_CASE = CaseFilter()


def parse_arm(text: str) -> Arm:
    """`REQUEST[,KEY=VALUE]...` as an arm. Raises UserError on an unknown key or value."""
    request, *settings = text.split(",")
    parsed = parse_request(request)
    framework, options = parsed.framework, _OPTIONS[parsed.framework]
    chosen, named = {"compile": _DEFAULT_MODE[framework]}, set[str]()
    for setting in settings:
        key, _, value = setting.partition("=")
        if value not in options.get(key, ()):
            raise UserError(
                f"wanted settings of {_format_options(options)} after {request!r}, got "
                f"{setting[:100]!r}{_WHY_NO_SETTING.get(key, '')}; "
                f"write for example {request},compile={chosen['compile']}"
            )
        if key in named:
            raise UserError(f"wanted {key!r} of {request!r} once, got it again; leave one out")
        named.add(key)
        chosen[key] = value
    name = "-with-".join([name_arm(framework, chosen), *parsed.extras])
    return Arm(name=name, request=request, settings=chosen)


_WHY_NO_SETTING = {
    "precision": " (precision is part of the case: both sides have it)",
    "batch": " (batch is part of the case: both sides have it)",
    "threads": " (threads are the harness's: both sides get every CPU they may use)",
    "device": " (the device is the duel's: both sides run on it)",
}


def list_own_settings(framework: str, settings: Mapping[str, str]) -> list[str]:
    """The settings of an arm that are not the default, as `KEY=VALUE`."""
    usual = {key: values[0] for key, values in _OPTIONS[framework].items()}
    usual["compile"] = _DEFAULT_MODE[framework]
    return [f"{key}={value}" for key, value in settings.items() if usual.get(key) != value]


def list_settings_of(framework: str, arm: str) -> list[str]:
    """The settings of a track's arm that are not the default, by the arm's name; none for other
    arms."""
    arms = {each.name: each for track in (*TRACKS.values(), (EAGER_ARM,)) for each in track}
    return list_own_settings(framework, arms[arm].settings) if arm in arms else []


def list_extras(arm: str) -> list[str]:
    """The named sets of further packages of an arm that `parse_arm` named."""
    return arm.split("-with-")[1:]


def write_extras(arm: str) -> str:
    """The extras of a version request: `[opacus]`."""
    return "".join(f"[{each}]" for each in list_extras(arm))


def list_settings() -> list[str]:
    """Every non-default setting of either framework, as `KEY=VALUE`."""
    usual = {f"compile={mode}" for mode in _DEFAULT_MODE.values() if mode != "none"}
    listed = [
        f"{key}={value}"
        for framework in COMPARED
        for key, values in _OPTIONS[framework].items()
        for value in (values if key == "compile" else values[1:])
    ]
    return [each for each in dict.fromkeys(listed) if each not in usual]


def format_settings() -> str:
    """Every setting of an arm with its values, the default first."""
    return ". ".join(f"{each}: {_format_options(_OPTIONS[each])}" for each in COMPARED)


def _format_options(options: Options) -> str:
    return "; ".join(f"{key}={'|'.join(values)}" for key, values in options.items())


def name_arm(framework: str, settings: Mapping[str, str]) -> str:
    """The arm's name: how it compiles, and each setting that is not the default."""
    mode = settings["compile"]
    special = {"jit": "jax-jit", "default": "torch-compile", "none": f"{framework}-eager"}
    name = "stdlib" if framework == "stdlib" else special.get(mode, f"torch-compile-{mode}")
    for key, values in _OPTIONS[framework].items():
        value = settings.get(key, values[0])
        if key != "compile" and value != values[0]:
            name += "-" + _SHORT_NAMES.get((key, value), f"{key}-{value}").replace("_", "-")
    return name


_SHORT_NAMES = {
    ("donate", "no"): "no-donation",
    ("command_buffers", "off"): "no-command-buffers",
    ("layout", "channels_last"): "channels-last",
    ("cudnn_benchmark", "on"): "cudnn-benchmark",
    ("strategy", "fully_sharded"): "fully-sharded",
    ("strategy", "tensor"): "tensor",
}
