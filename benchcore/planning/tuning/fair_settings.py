"""The settings that a search may choose for one side of a case: those that keep the mathematics,
and that exist on the device."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from benchcore.device_names import parse_device
from benchcore.planning.catalog import find_case, options_of
from benchcore.workloads.settings import DEFECTS, XLA_FLAGS

Settings = Mapping[str, str]
Choices = Mapping[str, Sequence[str]]
"""By key the values that may be chosen, the default first."""

_DEFAULT_COMPILE = {"torch": "default"}
"""Where the default of `deadheat compare` is not the first mode of the list."""
_GPU_ONLY: Choices = {
    "compile": ("reduce-overhead", "max-autotune-no-cudagraphs"),
    "command_buffers": ("off",),
    "cudnn_benchmark": ("on",),
    "workaround": ("no-triton-gemm",),
    "attention": ("efficient", "cudnn"),
    "kernel": ("pallas", "triton"),
}
_ONLY_FOR = {
    "donate": "train",
    "optimizer": "train",
    "chunk": "per_sample_grad",
    "per_sample": "per_sample_grad",
    "strategy": "train",
}
"""Settings that matter in one use case alone."""
_OF_SEVERAL_DEVICES = ("strategy", "processes")
_NOT_SEARCHED = (DEFECTS, "model")
"""`model` is how people write a network, and nothing where it is compiled."""
_SLOWER_BY_DESIGN = ("autotune-5", "no-fusion-autotuner", "autotune-0")
"""Workarounds of crashes: they add checks, or take candidates from XLA's own search."""


def list_choices(workload: str, case: str, framework: str, device: str) -> Choices:
    """What a search may choose on this device. Raises UserError for an unknown workload or case."""
    found = find_case(workload, case)
    on_gpu = parse_device(device).kind != "cpu"
    half = found.precision.startswith("bf16")

    def is_fair(key: str, value: str) -> bool:
        if value in _SLOWER_BY_DESIGN or found.use_case != _ONLY_FOR.get(key, found.use_case):
            return False
        if key in _OF_SEVERAL_DEVICES and getattr(found, "devices", 1) == 1:
            return False
        if (framework, key, value) == ("jax", "compile", "none"):
            return False  # what NumPy's users do, and never what a search is for
        if key == "xla":
            return _is_for(value, "gpu" if on_gpu else "cpu")
        if (framework, key, value) == ("jax", "attention", "cudnn"):
            return on_gpu and half
        return on_gpu or value not in _GPU_ONLY.get(key, ())

    choices: dict[str, tuple[str, ...]] = {}
    for key, values in options_of(workload, framework).items():
        default = _DEFAULT_COMPILE.get(framework, values[0]) if key == "compile" else values[0]
        others = tuple(each for each in values if each != default and is_fair(key, each))
        if key not in _NOT_SEARCHED and (others or key == "compile"):
            choices[key] = (default, *others)
    return choices


def _is_for(value: str, kind: str) -> bool:
    """Whether a flag of XLA is for this kind of device."""
    return XLA_FLAGS[value].startswith(f"--xla_{kind}_")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One changed setting, to be measured against the best settings so far."""

    change: str
    """`KEY=VALUE`."""
    best: Settings
    settings: Settings


Descent = Generator[Candidate, bool, None]


def descend(choices: Choices) -> Descent:
    """Coordinate descent from the defaults: yields candidates, and is sent whether each one won.

    Ends when no change of a single setting wins against the best. No pair is compared twice.
    """
    best: dict[str, str] = {key: values[0] for key, values in choices.items()}
    met = set[frozenset[frozenset[tuple[str, str]]]]()
    while True:
        before = best
        for key, values in choices.items():
            for value in values:
                tried = {**best, key: value}
                pair = frozenset((frozenset(best.items()), frozenset(tried.items())))
                if tried == best or pair in met:
                    continue
                met.add(pair)
                if (yield Candidate(change=f"{key}={value}", best=best, settings=tried)):
                    best = tried
        if best == before:
            return


def drop_defaults(settings: Settings, choices: Choices) -> dict[str, str]:
    """The settings of an arm: how it compiles, and what is not the default."""
    return {
        key: value
        for key, value in settings.items()
        if key == "compile" or value != choices[key][0]
    }
