"""Reads and evaluates JAX's jaxprs, without importing JAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

INLINED = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_vmap_call": "call",
}
"""Calls within a program, by name: the parameter that has their jaxpr."""


def find_inlined(equation: Any) -> Any | None:
    """The jaxpr that an equation calls once; None if it is no such call."""
    return equation.params.get(INLINED.get(equation.primitive.name, ""))


def list_inner(equation: Any) -> Iterator[Any]:
    """The jaxprs within an equation."""
    for value in equation.params.values():
        for inner in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                yield inner


def walk_equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in list_inner(equation):
            yield from walk_equations(inner)


def bind_equation(equation: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of an equation on other arrays, or on tracers."""
    bound = equation.primitive.get_bind_params(equation.params)  # a pair until JAX 0.10
    before, given = bound if isinstance(bound, tuple) else ((), bound)
    found = equation.primitive.bind(*before, *arrays, **given)
    return list(found) if equation.primitive.multiple_results else [found]
