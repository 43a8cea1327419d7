"""Finds what a step of JAX passes to its compiled functions, and gets back, besides arrays of
numbers. To flatten, hash or return it takes time, and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchcore.cell.explain.jax_products import JITS
from benchcore.cell.proof.watching.host_work import watch_compiled

_FEW = 8
"""Numbers of Python, empty arrays, or results that are returned twice."""
_FREE_NODES, _NODES = 64, 2
"""Nodes of a tree that are no array, and how many more there may be for each array."""


def list_excess(jax: Any, step: Callable[[], object]) -> list[str]:
    """What one step passes needlessly. Nothing is seen before Python 3.12."""
    found: list[str] = []

    def read(given: Mapping[str, Any]) -> None:
        found.extend(_name_needless(jax, (given["args"], given.get("kwargs"))))

    with watch_compiled(lambda called: None, read):
        step()
    return found


def _name_needless(jax: Any, given: object) -> Iterator[str]:
    leaves, tree = jax.tree.flatten(given)
    arrays = [each for each in leaves if isinstance(each, jax.Array) and each.size]
    if len(leaves) - len(arrays) > _FEW:
        yield f"{len(leaves) - len(arrays)} arguments that are no arrays of numbers"
    if len(arrays) - len(set(map(id, arrays))) > _FEW:
        yield "arguments that are passed twice"
    if tree.num_nodes - len(leaves) > _FREE_NODES + _NODES * len(arrays):
        yield f"{tree.num_nodes - len(leaves)} nodes of arguments without an array"


def list_repeated(closed: Any) -> Iterator[int]:
    """How many results each compiled function that a step calls returns again, if they are many."""
    for equation in closed.jaxpr.eqns:
        if equation.primitive.name in JITS:
            results = _identify_results(equation.params["jaxpr"])
            again = len(results) - len(set(results))
            yield from [again] if again > _FEW else []


def _identify_results(closed: Any) -> list[object]:
    """What is equal for two results only if they are one. A function within may return one twice,
    as an optimiser does: only what comes back to Python takes time."""
    known: dict[int, object] = {}
    for equation in closed.jaxpr.eqns:
        if equation.primitive.name in JITS:
            inner = equation.params["jaxpr"]
            given = [known.get(id(each), id(each)) for each in equation.invars]
            passed: dict[object, object] = dict(
                zip(map(id, inner.jaxpr.invars), given, strict=True)
            )
            for out, each in zip(equation.outvars, _identify_results(inner), strict=True):
                known[id(out)] = passed.get(each, (id(equation), each))
    return [
        object() if hasattr(each, "val") else known.get(id(each), id(each))
        for each in closed.jaxpr.outvars
    ]
