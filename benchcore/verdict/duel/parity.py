"""Compare the settings that both sides of a pair read back, by their manifests.

Settings that no arm may choose must be equal. Settings of an arm must read back as it requested.
If two arms request different values, the pair is labelled, and not fair; in the tuned track it is,
as each side runs with what a search with equal budgets found best for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from benchcore.workloads.settings import STRATEGY, BuildSettings

SHARED = (
    "device",
    "matmul_precision",
    "conv_precision",
    "matmul_seen",
    "conv_seen",
    "param_dtype",
    "output_dtype",
    "dropout",
    "drop_rates",
    "data_path",
    "input_buffers",
    "threads",
    "wait_policy",
    "synchronisation",
    "random_numbers",
    "functions",
)
"""Settings of the case or the harness: a difference voids the ratio."""
CHOSEN = ("compiled", "graphs", "state_update", "autotune", "layout", "strategy")
"""Settings of the arms: as requested, or the ratio is void."""
SHIPPED = ("cudnn", "cublas", "nccl")
"""NVIDIA's libraries that each framework brings: reported, as they belong to its release."""
_UNFAIR = frozenset(CHOSEN) - {"layout"}
"""XLA chooses its own layout for any input, so a different one is only reported."""
_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes of `torch.compile` that record CUDA graphs."""


@dataclass(frozen=True, kw_only=True)
class ParitySide:
    """One contender: the settings that its arm requested, and those read back after it ran."""

    name: str
    framework: str
    settings: Mapping[str, Any]
    manifest: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Parity:
    """`violations` void the ratio; `labels` describe differences between the arms; `differences`
    are all differing readings in short form: name, a's and b's.

    A pair with an unfair label also compares arms, not only frameworks: eager against compiled.
    """

    violations: tuple[str, ...]
    labels: tuple[str, ...]
    fair: bool
    differences: tuple[tuple[str, str, str], ...] = ()


def compare_sides(a: ParitySide, b: ParitySide, track: str) -> Parity:
    """Compare two sides. A missing manifest is a violation."""
    missing = tuple(f"{side.name} has no manifest" for side in (a, b) if not side.manifest)
    if missing:
        return Parity(violations=missing, labels=(), fair=False)
    violations = [
        _describe_difference(key, a, b)
        for key in SHARED
        if _read(key, a) != _read(key, b) and (key != _DRAWN or _can_compare_draws(a, b))
    ]
    violations += [text for side in (a, b) for text in _list_violations(side)]
    violations += _judge_sizes(a, b)
    violations += _judge_state(a, b)
    unlike = [key for key in CHOSEN if _read(key, a) != _read(key, b)]
    unlike += [key for key in SHIPPED if _have_other_versions(key, a, b)]
    if "no state" in (_read("state_update", a), _read("state_update", b)):
        violations += [_describe_difference(key, a, b) for key in unlike if key == "state_update"]
    unfair = [key for key in unlike if key in _UNFAIR]
    return Parity(
        violations=tuple(dict.fromkeys(violations)),
        labels=tuple(_describe_difference(key, a, b) for key in unlike),
        fair=not violations and (track == "tuned" or not unfair),
        differences=tuple(
            (key.replace("_", " "), _read(key, a), _read(key, b))
            for key in dict.fromkeys((*SHARED, *CHOSEN, *unlike))
            if _read(key, a) != _read(key, b)
        ),
    )


_DRAWN = "random_numbers"


def _can_compare_draws(a: ParitySide, b: ParitySide) -> bool:
    """Whether the steps of both sides could be followed, or of neither. Steps of several processes
    can't: on several devices PyTorch has a process each, and JAX has one."""
    return len({"host_calls" in side.manifest for side in (a, b)}) == 1


def _read(key: str, side: ParitySide) -> str:
    if key == "strategy" and key not in side.manifest:  # of one device, or an older harness
        return _find_strategy(side)
    return side.manifest.get(key, "not read")


def _find_strategy(side: ParitySide) -> str:
    """The one that its arm chose."""
    return str(side.settings.get("strategy", STRATEGY["strategy"][0]))


def _have_other_versions(library: str, a: ParitySide, b: ParitySide) -> bool:
    """Whether both sides loaded a library, in different versions."""
    versions = {_read(library, a), _read(library, b)}
    return len(versions) > 1 and not versions & {"not loaded", "not read"}


def _describe_difference(key: str, a: ParitySide, b: ParitySide) -> str:
    word = key.replace("_", " ")
    return f"{word} {_read(key, a)!r} on {a.name}, {_read(key, b)!r} on {b.name}"


def _list_violations(side: ParitySide) -> list[str]:
    """Settings that read back differently from what the arm, or every side, requires."""
    return [
        f"{key.replace('_', ' ')} of {side.name} reads {_read(key, side)!r}, where {required!r} is "
        "required"
        for key, required in {**_list_required(side), **_OF_EVERY_SIDE}.items()
        if not _is_as_required(key, _read(key, side), required)
    ]


def _is_as_required(key: str, found: str, required: str) -> bool:
    """Whether a reading fulfils a requirement. It does if it could not be read, except for a kernel
    that the arm promises."""
    excused = () if required in _OWN_KERNELS else _BESIDE_THE_POINT.get(key, ())
    return found in (required, *excused)


def _judge_sizes(a: ParitySide, b: ParitySide) -> list[str]:
    """Whether one side computes in smaller pieces, or reads more, which no arm requested."""
    if not all(map(_is_plain, (a, b))):
        return []
    return [
        f"{_describe_difference(key, a, b)}: one side {what}"
        for key, (what, most, more) in MOST_UNLIKE_SIZES.items()
        if _are_unlike([_read_sizes(side, key) for side in (a, b)], most, more)
    ]


def _judge_state(a: ParitySide, b: ParitySide) -> list[str]:
    """Whether a device of one side keeps more of the state, where both arms chose one strategy."""
    held = [_read_sizes(side, "state_held") for side in (a, b)]
    if _find_strategy(a) != _find_strategy(b) or not _are_unlike(held, *_MOST_HELD):
        return []
    return [f"{_describe_difference('state_held', a, b)}: one side shares less of its state"]


def _is_plain(side: ParitySide) -> bool:
    return all(side.settings.get(key, usual) == usual for key, usual in PLAIN.items())


def _are_unlike(sizes: Sequence[Sequence[float]], most: float, more: float) -> bool:
    found = [each for of_side in sizes for each in of_side]
    return all(sizes) and max(found) > most * min(found) + more


def _read_sizes(side: ParitySide, key: str) -> list[float]:
    """The sizes of each inspected start whose reading differs."""
    readings = side.manifest.get(key, "").split(", then ")
    return [float(each.partition(" ")[0]) for each in readings if each]


MOST_UNLIKE_SIZES = {
    "product_size": ("computes in smaller pieces", 1.5, 0.0),
    "shape_size": ("joins batches of several shapes", 1.02, 0.0),
    "operation_size": ("computes in smaller pieces", 5.0, 0.0),
    "floats_read": ("reads more than the other", 1.02, 256.0),
    "integers_read": ("reads more than the other", 1.02, 128.0),
}
"""How many times as large one side's typical product may be as the other's (FLOP), and where there
are no products its typical operation (elements); and how much more (bytes of floats, and integers)
a step may read of what was there before it: ours differ by counts of steps and batches alone. Where
inputs have several shapes, our typical products are equal. Of our tiny cases: at most 1.11 times
(gradients per sample, whose attention torch's `vmap` takes apart), and 4 times (`ops
tiny_op_gather`, whose few indices JAX checks one by one; larger cases: 1.0)."""
_MOST_HELD = (1.01, 512.0)
"""How many times as much of the state a device of one side may keep, and how much more (bytes). Of
our cases: up to 408 bytes more in tiny ones, and 1.0003 times in others, where the size of an axis
isn't a multiple of the number of devices."""
_OWN_KERNELS = ("pallas", "triton")
_IN_PIECES = ("batching", "chunk", "per_sample", "kernel", "aggregate", "strategy", "processes")
PLAIN = {each.name: each.default for each in fields(BuildSettings) if each.name in _IN_PIECES}
"""The defaults of settings by which an arm chooses in what pieces a step computes."""
_OF_EVERY_SIDE = {
    "switches": "as set",
    "switches_within": "as set",
    "host_calls": "none",
    "owed": "all",
    "reads": "what was given",
    "compile_options": "as set",
    "bf16_exponentials": "none",
    "autograd_graph": "none",
    "params": "read",
    "processes": "none",
    "generator": "usual",
    "branches": "none",
    "operations": "those of float32",
    "variances": "in two passes",
    "reach": "none",
}
"""No program changes a global switch, and no step calls what waits, reads a clock or a file, or
copies from or to the host. It returns all that it computes, so that the harness waits for it, and
reads the parameters and inputs that it was given, not what was computed of them beforehand. No step
of torch keeps a graph for a backward pass that nobody runs. A step draws random numbers with its
framework's own generator, and no number of a state decides what it computes. In
a coarser precision it runs the same operations. No
variance is the difference of two means. Its code reaches nothing beyond its framework."""
_BESIDE_THE_POINT = {
    "state_update": ("no state",),
    "layout": ("none",),
    "compiled_whole": ("not read",),
    "optimizer": ("not read",),
    "hooks": ("not read",),
    "shapes": ("not read", "none"),
    **dict.fromkeys(("aggregate", "batching", "kernel", "model", "per_sample"), ("not read",)),
    **dict.fromkeys(("attention", "xla"), ("not read",)),
    **dict.fromkeys(_OF_EVERY_SIDE, ("not read",)),
}
"""Inference updates no state; a workload without convolutions has no layout. Not every step can be
watched: not of several processes, nor in documents of older harnesses."""


def _list_required(side: ParitySide) -> dict[str, str]:
    on_gpu = side.manifest.get("device") == "gpu"
    if side.framework == "jax":
        update = {"yes": "in place", "no": "copied"}[side.settings.get("donate", "yes")]
        compiles = side.settings.get("compile") != "none"
        graphs = side.settings.get("command_buffers", "on")
        autotune = "off" if side.settings.get("workaround") == "autotune-0" else "on"
        return {
            "compiled": "yes" if compiles else "no",
            "graphs": graphs if on_gpu else "off",
            "state_update": update,
            "autotune": autotune if on_gpu else "none",
            **({"compiled_whole": "yes"} if compiles and _is_plain(side) else {}),
            "xla": side.settings.get("xla", "usual"),
            **_require_chosen(side),
        }
    mode = side.settings.get("compile", "none")
    compiles_update = side.settings.get("optimizer") == "compiled"
    layouts = {"contiguous": "NCHW", "channels_last": "NHWC"}
    update = side.settings.get("optimizer", "usual")
    trains = _read("state_update", side) != "no state"
    return {
        "compiled": "yes" if mode != "none" or compiles_update else "no",
        "graphs": "on" if on_gpu and mode in _GRAPHS else "off",
        "state_update": "in place",
        "autotune": side.settings.get("cudnn_benchmark", "off") if on_gpu else "none",
        "layout": layouts[side.settings.get("layout", "contiguous")],
        **({"optimizer": "usual" if compiles_update else update} if trains else {}),
        **({"compiled_whole": "yes", "hooks": "none"} if _is_plain(side) else {}),
        "model": side.settings.get("model", "modules"),
        "shapes": side.settings.get("shapes", "automatic"),
        **_require_chosen(side),
    }


def _require_chosen(side: ParitySide) -> dict[str, str]:
    """How the arm chose to compute. Opacus may use `vmap`, too."""
    by_vmap = {key: side.settings.get(key, "vmap") for key in ("batching", "per_sample")}
    return {
        **{key: side.settings.get(key, PLAIN[key]) for key in ("aggregate", "kernel", "strategy")},
        "attention": side.settings.get("attention", "usual"),
        **{
            key: "vmap" if value == "vmap" else "no vmap"
            for key, value in by_vmap.items()
            if value != "opacus"
        },
    }
