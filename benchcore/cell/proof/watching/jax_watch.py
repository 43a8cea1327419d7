"""Watches what a JAX step does besides its work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from benchcore.cell.explain.jax_products import JITS
from benchcore.cell.explain.jax_profile import Waits, count_calls, size_first_copy
from benchcore.cell.explain.jaxpr import INLINED, list_inner, walk_equations
from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.cell.proof.following.jax_drawing import list_branches, list_draws
from benchcore.cell.proof.manifest import join_readings
from benchcore.cell.proof.steps.given import FUNCTIONS, ROUNDED, Readings
from benchcore.cell.proof.watching.host_calls import join_calls, list_host_calls, list_own_calls
from benchcore.cell.proof.watching.jax_arguments import list_excess, list_repeated
from benchcore.cell.proof.watching.variances import list_in_jaxpr

if TYPE_CHECKING:
    from benchcore.cell.bound_program import BoundProgram

_NUMBER_BYTES = 8


def watch_step(jax: Any, program: BoundProgram, *, to_end: bool = True) -> dict[str, str]:
    """Readings `host_calls` and `owed` of some steps. With `to_end`, one more step runs and is
    interrupted when it copies an array from the host. Of a step that other processes follow, only
    what its own code calls is read."""
    if program.is_followed:
        return {"host_calls": join_calls(list_own_calls(program.plain_step))}
    calls = list_host_calls(program.plain_step)
    calls += list_excess(jax, program.plain_step)
    if count_calls(program.plain_step)["module_calls"]:
        calls.append("a module of flax")
    waits = Waits(jax)
    earlier = jax.live_arrays()
    with waits.counted(), waits.window():
        outputs = program.plain_step()
    if waits.count:
        calls.append("jax.Array.__array__")
    owed = _describe_owed(jax, earlier, outputs)
    if to_end and (size_first_copy(jax, program.plain_step) or 0) > _NUMBER_BYTES:
        calls.append("jax.device_put")
    return {"host_calls": join_calls(calls), "owed": owed}


def is_profiling() -> dict[str, object]:
    """The state of JAX's profiler: whether a profile is or may be recorded. Versions from 0.4.36 to
    0.12 are known."""
    profiler = sys.modules.get("jax._src.profiler")
    state = getattr(profiler, "_profile_state", None)
    sessions = (getattr(state, each, None) for each in ("session", "profile_session"))
    server = getattr(profiler, "_profiler_server", None)
    return {"profiler": [each is not None for each in (*sessions, server)]}


def list_compiler_settings(jax: Any) -> dict[str, object]:
    """The part of JAX's configuration that affects how XLA compiles, where it stores programs, and
    how random numbers are made: `threefry_partitionable` off halves that work."""
    values = jax.config.values.items()
    return {name: each for name, each in values if any(part in name for part in _OF_COMPILERS)}


_OF_COMPILERS = ("cache", "effort", "optimi", "prng", "threefry", "xla")


def describe_compiled(jax: Any, step: Callable[[], object]) -> str:
    """`yes` if a step is a single call of a compiled function, otherwise `no`. Afterwards the
    program may hold tracers until it is reset."""
    names = [each.primitive.name for each in jax.make_jaxpr(step)().eqns]
    return "yes" if len(names) == 1 and names[0] in JITS else "no"


def _describe_owed(jax: Any, earlier: list[Any], outputs: object) -> str:
    """Whether all arrays that a step made are among those that it returned, as JAX's pytrees show
    them. The harness waits for no others, such as those in a class that JAX does not know."""
    known = {id(each) for each in (*earlier, *jax.tree.leaves(outputs))}
    lacking = [each for each in jax.live_arrays() if id(each) not in known]
    return f"all but {len(lacking)} arrays" if lacking else "all"


def inspect_step(jax: Any, step: Callable[[], object], is_eager: bool = False) -> Readings:
    """Readings of one step; it reads the arrays that it closes over. Programs are not counted if it
    `is_eager`. Afterwards the program may hold tracers until it is reset."""
    traced = jax.make_jaxpr(lambda: list(list_arrays(step())))()
    found = {id(each): each for each in _list_constants(traced)}
    extended = jax.dtypes.extended  # keys of random numbers
    plain = [each for each in found.values() if not jax.dtypes.issubdtype(each.dtype, extended)]
    draws = list_draws(traced)
    return Readings(
        arrays=[copy_to_host(each) for each in plain],
        drawn=sum(each.numbers for each in draws),
        read=found.keys(),
        floats=_size_floats(plain),
        memory=[(str(each.dtype), int(each.size)) for each in plain],
        generators=[each.generator for each in draws],
        branches=list(list_branches(traced)),
        uncomputed=[copy_to_host(each) for each in _list_uncomputed(traced)],
        sizes=list(_list_sizes(traced)),
        operations=list(_list_operations(traced)),
        rounded=_list_rounded(traced),
        functions=_list_functions(traced),
        one_pass=list_in_jaxpr(traced),
        repeated=any(list_repeated(traced)),
        programs=0 if is_eager else _count_programs(traced),
        chosen=_list_chosen(traced),
    )


def list_floats(jax: Any, step: Callable[[], object]) -> dict[int, int]:
    """Identity and numbers of each array of floats that one step closes over. Afterwards the
    program may hold tracers until it is reset."""
    return _size_floats(_list_constants(jax.make_jaxpr(lambda: list(list_arrays(step())))()))


def _size_floats(arrays: Iterable[Any]) -> dict[int, int]:
    return {id(each): int(each.size) for each in arrays if "float" in str(each.dtype)}


_PRODUCTS = ("conv_general_dilated", "dot_general")


def _list_chosen(traced: Any) -> dict[str, str]:
    """Readings of settings: which operations there are, and whether `vmap` made all products."""
    names = {each.primitive.name for each in walk_equations(traced)}
    return {
        "aggregate": "sparse" if any(each.startswith("bcoo_") for each in names) else "scatter",
        "batching": join_readings(
            "vmap" if each else "no vmap" for each in _list_batched(traced, within=False)
        ),
        "kernel": "pallas" if any(each.startswith("pallas") for each in names) else "compiler",
    }


def _list_batched(jaxpr: Any, *, within: bool) -> Iterator[bool]:
    """For each product whether it, or the call around it, was batched by `jax.vmap`."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        names = getattr(equation.source_info.name_stack, "stack", ())
        batched = within or any(
            type(each).__name__ == "Transform" and each.name == "vmap" for each in names
        )
        if equation.primitive.name in _PRODUCTS:
            yield batched
        for inner in list_inner(equation):
            yield from _list_batched(inner, within=batched)


def _count_programs(traced: Any) -> int:
    """Number of compiled functions that a step calls and that return more than a number."""
    calls = [each for each in traced.jaxpr.eqns if each.primitive.name in JITS]
    return sum(any(out.aval.size > 1 for out in each.outvars) for each in calls)


def _list_rounded(traced: Any) -> list[tuple[str, int]]:
    """Exponentials, logarithms and roots in bfloat16, without the exponential in the derivative of
    an error function, as in GELU."""
    found, derivatives = [], []
    for equation in walk_equations(traced):
        name, result = equation.primitive.name, equation.outvars[0].aval
        if str(getattr(result, "dtype", "")) != "bfloat16" or result.size <= 1:
            continue
        if name in ("erf", "erfc"):
            derivatives.append(("exp", int(result.size)))
        elif name in ROUNDED:
            found.append((name, int(result.size)))
    for each in derivatives:
        if each in found:
            found.remove(each)
    return found


def _list_operations(traced: Any) -> Iterator[str]:
    """Name and size of each operation that computes more than a number."""
    for equation in walk_equations(traced):
        size = max((getattr(each.aval, "size", 0) for each in equation.outvars), default=0)
        if size > 1 and equation.primitive.name not in INLINED:
            yield f"{equation.primitive.name} {size}"


def _list_functions(traced: Any) -> set[str]:
    return {
        FUNCTIONS[each.primitive.name]
        for each in walk_equations(traced)
        if each.primitive.name in FUNCTIONS and each.outvars[0].aval.size > 1
    }


_WITH_FUNCTION = ("pallas", "reduce", "scatter", "select_and", "sort")
"""How the names of operations begin whose inner programs are of a few numbers."""


def _list_sizes(traced: Any) -> Iterator[int]:
    """Elements of the largest array of each operation, once per run of a loop."""
    for equation in getattr(traced, "jaxpr", traced).eqns:
        name, inner = equation.primitive.name, list(list_inner(equation))
        if inner and not name.startswith(_WITH_FUNCTION):
            times = equation.params["length"] if name == "scan" else 1
            yield from times * [size for each in inner for size in _list_sizes(each)]
        else:
            arrays = (each.aval for each in (*equation.invars, *equation.outvars))
            yield max((each.size for each in arrays if hasattr(each, "size")), default=0)


def _list_uncomputed(closed: Any) -> list[Any]:
    """The constants that are returned unchanged."""
    constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return [
        constants[origin]
        for origin in _find_origins(closed.jaxpr)
        if not hasattr(origin, "val") and origin in constants
    ]


def _find_origins(jaxpr: Any) -> list[Any]:
    """For each output the variable that it comes from, through functions that return their
    arguments."""
    origins: dict[Any, Any] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name in JITS:
            inner = equation.params["jaxpr"].jaxpr
            passed = dict(zip(inner.invars, equation.invars, strict=True))
            for out, origin in zip(equation.outvars, _find_origins(inner), strict=True):
                if not hasattr(origin, "val") and origin in passed:
                    origins[out] = passed[origin]
    found = []
    for each in jaxpr.outvars:
        while not hasattr(each, "val") and each in origins:
            each = origins[each]
        found.append(each)
    return found


def _list_constants(closed: Any) -> Iterator[Any]:
    """The constants of a jaxpr and of the jaxprs within it."""
    yield from (each for each in getattr(closed, "consts", ()) if hasattr(each, "dtype"))
    for equation in getattr(closed, "jaxpr", closed).eqns:
        for inner in list_inner(equation):
            yield from _list_constants(inner)
