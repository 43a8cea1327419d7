"""Watches what a JAX step does beside its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchcore.cell.explain.jax_products import JITS
from benchcore.cell.explain.jax_profile import Waits, size_first_copy
from benchcore.cell.nested import list_arrays
from benchcore.cell.proof.host_calls import join_calls, list_host_calls

if TYPE_CHECKING:
    from benchcore.cell.bound_program import BoundProgram

_NUMBER_BYTES = 8


def watch_step(jax: Any, program: BoundProgram) -> dict[str, str]:
    """The last of the steps is interrupted where it copies an array from the host."""
    calls = list_host_calls(program.plain_step)
    waits = Waits(jax)
    earlier = jax.live_arrays()
    with waits.counted(), waits.window():
        outputs = program.plain_step()
    if waits.count:
        calls.append("jax.Array.__array__")
    owed = _describe_owed(jax, earlier, outputs)
    if (size_first_copy(jax, program.plain_step) or 0) > _NUMBER_BYTES:
        calls.append("jax.device_put")
    return {"host_calls": join_calls(calls), "owed": owed}


def describe_compiled(jax: Any, step: Callable[[], object]) -> str:
    """`yes` if a step is one call of a compiled function, `no` if it is any other call, or several.
    Afterwards the program may hold tracers until it is reset."""
    names = [each.primitive.name for each in jax.make_jaxpr(step)().eqns]
    return "yes" if len(names) == 1 and names[0] in JITS else "no"


def _describe_owed(jax: Any, earlier: list[Any], outputs: object) -> str:
    """Whether every array that a step made and left is among what it returns: the harness waits for
    no other."""
    known = {id(each) for each in (*earlier, *list_arrays(outputs), *jax.tree.leaves(outputs))}
    lacking = [each for each in jax.live_arrays() if id(each) not in known]
    return f"all but {len(lacking)} arrays" if lacking else "all"
