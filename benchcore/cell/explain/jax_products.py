"""Counts the products of a JAX step: in its jaxpr, and in the program that XLA made of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchcore.cell.explain.hlo import list_product_dtypes
from benchcore.cell.explain.jaxpr import list_inner
from benchcore.cell.explain.products import (
    NOTHING_COMPILED,
    Asked,
    Compiled,
    add_up,
    describe_asked,
    join_dtypes,
    split,
)

JITS = ("pjit", "jit")
"""A compiled function that is called, by its primitive."""
_UNCOUNTED = ("while", "custom_call", "ffi_call")


def count_asked(jax: Any, step: Callable[[], object], steps: int = 1) -> Asked:
    """The products of a step, as the mean of some that are traced. A compiled function that the
    step calls itself runs, whether its results are used or not. Afterwards the program holds
    tracers until it is reset.

    Raises ValueError where the number of products depends on values.
    """
    traced = jax.make_jaxpr(lambda: [step() for _ in range(steps)])()
    return describe_asked(list(_walk(traced, runs=JITS)), steps)


def _walk(
    jaxpr: Any, wanted: Sequence[bool] | None = None, runs: tuple[str, ...] = ()
) -> Iterator[tuple[str, int]]:
    """Every product that the wanted outputs need (None = all): what else is there XLA leaves out,
    such as the forward pass of a gradient that does not need its result. Primitives that `runs`
    names run in any case, and so does what has effects, such as a kernel's writes."""
    plain = getattr(jaxpr, "jaxpr", jaxpr)
    wanted = wanted or [True] * len(plain.outvars)
    needed = {id(each) for each, want in zip(plain.outvars, wanted, strict=True) if want}
    for equation in reversed(plain.eqns):
        runs_alone = equation.primitive.name in runs or bool(equation.effects)
        live = [runs_alone or id(each) in needed for each in equation.outvars]
        if any(live):
            needed |= {id(each) for each in equation.invars}
            yield from _count(equation, live)


def _count(equation: Any, live: Sequence[bool]) -> Iterator[tuple[str, int]]:
    name = equation.primitive.name
    if name in _FORMULAS:
        operands = [each.aval for each in equation.invars[:2]]
        flops = _FORMULAS[name](equation, *(each.shape for each in operands))
        dtypes = join_dtypes([str(each.dtype) for each in operands])
        yield from ((dtypes, each) for each in split(flops, _NUM_WITHIN.get(name, 1)))
        return
    wanted = live if name in JITS else None
    inner = [list(_walk(each, wanted)) for each in list_inner(equation)]
    if name in _UNCOUNTED and any(inner):
        raise ValueError(f"wanted products that can be counted, got some within {name!r}")
    if name == "cond":
        if len({tuple(sorted(add_up(each).items())) for each in inner}) > 1:
            raise ValueError(
                "wanted products that can be counted, got branches that differ in them"
            )
        inner = inner[:1]
    times = equation.params["length"] if name == "scan" else 1
    if name == "pallas_call":  # and of one program of its grid
        times = math.prod(equation.params["grid_mapping"].grid)
    if name == "shard_map":  # what is inside is one device's
        times = equation.params["mesh"].size
    yield from (part for each in inner for part in each for _ in range(times))


def _count_dot(equation: Any, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    outputs = math.prod(equation.outvars[0].aval.shape)
    return 2 * outputs * math.prod(left[axis] for axis in contracted)


def _count_convolution(equation: Any, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Each output uses each tap once. An input's gradient is a convolution of the output's, with
    zeros around it or (of a stride) between its values: there each value uses each tap once. A
    weight's gradient swaps the batch and the features."""
    numbers = equation.params["dimension_numbers"]
    outputs, inputs, *taps = numbers.rhs_spec
    macs = math.prod(equation.outvars[0].aval.shape) * right[inputs]
    if numbers.lhs_spec[0] == 0:
        groups = equation.params["feature_group_count"]
        macs = min(macs, math.prod(left) * right[outputs] // groups)
    return 2 * macs * math.prod(right[axis] for axis in taps)


def _count_attention(equation: Any, query: tuple[int, ...], key: tuple[int, ...]) -> int:
    """cuDNN's attention, (batch, token, head, feature): two products, and backward two for each.
    Not run on a GPU."""
    products = 4 if "_bwd" in equation.primitive.name else 2
    return 2 * products * math.prod(query) * key[1]


_FORMULAS: dict[str, Callable[..., int]] = {
    "dot_product_attention_fwd_wrapper": _count_attention,
    "dot_product_attention_bwd_wrapper": _count_attention,
    "dot_general": _count_dot,
    "conv_general_dilated": _count_convolution,
}


_NUM_WITHIN = {
    "dot_product_attention_fwd_wrapper": 2,
    "dot_product_attention_bwd_wrapper": 4,
}
"""How many products a primitive is, where it is not one."""


def inspect_compiled(lowered: Any, compiled: Any, *, devices: int = 1) -> Compiled:
    """The optimised program, which is that of one of several devices. Their FLOPs are compared with
    those of the program before it was optimised, both by XLA's own cost analysis, which counts
    arithmetic of every kind. XLA makes products over an axis of one number without a sum."""
    if compiled is None:
        return Compiled(dtypes=(), share=None, why=NOTHING_COMPILED)
    text, given = compiled.as_text() or "", lowered.as_text() or ""
    if devices > 1 and "manual_computation" in given:
        devices = 1  # it was one device's program from the start
    before, after = (_read_flops(each.cost_analysis()) for each in (lowered, compiled))
    if before:
        before -= count_empty_sums(given)
    why = ""
    if "custom-call(" in text:
        why = "XLA's cost analysis does not count calls of libraries"
    elif not before or after is None:
        why = "XLA's cost analysis has no FLOPs of it"
    share = None if why or not before or after is None else devices * after / before
    return Compiled(dtypes=list_product_dtypes(text), share=share, why=why)


_DOT_GENERAL = re.compile(
    r"stablehlo\.dot_general .*contracting_dims = \[([\d, ]*)\] x .*"
    r": \(tensor<([\dx]*x)\w+>, .*\) -> tensor<([\dx]*x)?\w+>"
)


def count_empty_sums(text: str) -> int:
    """The additions that a program's products ask for and need not do: those that contract axes of
    one number, such as a weight's gradient of one sample. `text` is StableHLO."""
    total = 0
    for axes, left, out in _DOT_GENERAL.findall(text):
        sizes = _read_sizes(left)
        if math.prod(sizes[int(axis)] for axis in axes.split(",") if axis.strip()) == 1:
            total += math.prod(_read_sizes(out))
    return total


def _read_sizes(shape: str) -> list[int]:
    """`8x1x` is [8, 1]."""
    return [int(each) for each in shape.split("x") if each]


def _read_flops(analysis: Any) -> float | None:
    """Newer versions return one dictionary, older ones a list of them."""
    first = analysis[0] if isinstance(analysis, list) and analysis else analysis
    return first.get("flops") if isinstance(first, dict) else None
