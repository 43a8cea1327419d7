"""Lists how a JAX step draws random numbers, and what depends on data, both from its jaxpr. It also
runs the step with bits that the harness gives in place of those that the step would draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchcore.cell.explain.jaxpr import bind_equation, find_inlined, list_inner, walk_equations
from benchcore.cell.proof.following.drawing import NUM_GIVEN, Followed, Read, make_bits
from benchcore.cell.proof.following.jax_needless import FAST
from benchcore.cell.proof.steps.given import USUAL_GENERATOR
from benchcore.program import ByName

_DRAWING = ("random_bits", "rng_bit_generator", "rng_uniform")
_USUAL = "key<fry>"
"""The dtype of keys of JAX's own choice, threefry2x32."""
_BITS = 32
"""Of one random number: dropout and normal numbers in float32 take as many."""
_FEW = 64
"""Elements of results that a branch may compute without being named, such as a scale of a loss."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One operation that draws. `numbers` counts 32 bits each, times the runs of a loop."""

    generator: str
    numbers: int


def list_draws(traced: Any) -> list[Draw]:
    """The draws whose results a step uses. XLA drops the others."""
    outputs = getattr(traced, "jaxpr", traced).outvars
    found, _ = _follow(traced, [True] * len(outputs), 1)
    return found


def _follow(closed: Any, wanted: Sequence[bool], times: int) -> tuple[list[Draw], list[bool]]:
    """The draws that the wanted outputs need, and which arguments they need."""
    jaxpr = getattr(closed, "jaxpr", closed)
    needed = {id(each) for each, want in zip(jaxpr.outvars, wanted, strict=True) if want}
    found: list[Draw] = []
    for equation in reversed(jaxpr.eqns):
        live = [id(each) in needed for each in equation.outvars]
        if not any(live) and not equation.effects:
            continue
        name, used = equation.primitive.name, [True] * len(equation.invars)
        called = find_inlined(equation)
        if called is not None:
            draws, taken = _follow(called, live, times)
            found += draws
            used = taken if len(taken) == len(used) else used
        else:
            if name in _DRAWING:
                found.append(_describe(equation, times))
            again = times * equation.params["length"] if name == "scan" else times
            for inner in list_inner(equation):
                outputs = getattr(inner, "jaxpr", inner).outvars
                found += _follow(inner, [True] * len(outputs), again)[0]
        needed.update(id(each) for each, use in zip(equation.invars, used, strict=True) if use)
    return found, [id(each) in needed for each in jaxpr.invars]


def _describe(equation: Any, times: int) -> Draw:
    """A key's dtype names its generator; other operations draw without a key."""
    name, results = equation.primitive.name, [each.aval for each in equation.outvars]
    bits = max(8 * each.size * each.dtype.itemsize for each in results)
    kind = str(equation.invars[0].aval.dtype) if name == "random_bits" else name
    generator = USUAL_GENERATOR if kind == _USUAL else kind
    return Draw(generator=generator, numbers=times * -(-bits // _BITS))


def list_branches(traced: Any) -> Iterator[str]:
    """What a step computes only sometimes, or as often as data decides: the bodies of `cond` and
    `while`, unless the platform decides."""
    by_platform: set[int] = set()
    for equation in walk_equations(traced):
        name, inputs = equation.primitive.name, [each for each in equation.invars if _varies(each)]
        of_platform = bool(inputs) and all(id(each) in by_platform for each in inputs)
        if name == "platform_index" or of_platform:
            by_platform.update(map(id, equation.outvars))
        if name not in ("cond", "while") or equation.params.get("branches_platforms"):
            continue
        decides = equation.invars[0] if name == "cond" else None
        size = max(_list_sizes(equation), default=0)
        if size > _FEW and id(decides) not in by_platform:
            yield f"{name} with {size} elements"


def _varies(variable: Any) -> bool:
    return not hasattr(variable, "val")


def _list_sizes(equation: Any) -> Iterator[int]:
    """Number of elements of each result within an operation."""
    for inner in list_inner(equation):
        for each in walk_equations(inner):
            yield from (int(getattr(out.aval, "size", 0)) for out in each.outvars)


_SHOWN = 16
"""Numbers of a draw that show which ones it got; fewer than the least could be equal by chance."""
_LEAST_SHOWN = 4


def draw_given(jax: Any, step: Callable[[], object], first: object, read: Read) -> Followed:
    """Run the steps by their jaxpr. Each gets what the step before it returned, in place of the
    arrays that `first` returned. Afterwards the program holds tracers until it is reset."""
    traced, shapes = jax.make_jaxpr(step, return_shape=True)()
    tree, sizes = jax.tree.structure(shapes), list(_list_drawn(traced))
    returned = {id(each): place for place, each in enumerate(jax.tree.leaves(first))}
    follows = [returned.get(id(each)) for each in traced.consts]

    def run(given: Sequence[Any], bits: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        drawing = _Drawing(jax, bits)
        return drawing.evaluate(traced, given, []), drawing.own

    def give(number: int) -> list[Any]:
        return [make_bits(number, place, size) for place, size in enumerate(sizes, start=1)]

    compiled = jax.jit(run).lower(traced.consts, give(0)).compile(compiler_options=FAST)
    given, outputs, drawn = list(traced.consts), list[ByName](), list[bytes]()
    for number in range(NUM_GIVEN):
        left, own = compiled(given, give(number))
        outputs.append(read(jax.tree.unflatten(tree, left)))
        drawn += [jax.device_get(each).tobytes() for each in own if each.size >= _LEAST_SHOWN]
        given = [
            each if place is None else left[place]
            for each, place in zip(given, follows, strict=True)
        ]
    return Followed(outputs=outputs, drawn=drawn)


def _list_drawn(closed: Any) -> Iterator[int]:
    """How many numbers each draw has, in order, without draws in loops and branches."""
    for equation in getattr(closed, "jaxpr", closed).eqns:
        called = find_inlined(equation)
        if equation.primitive.name == _GIVEN:
            yield int(equation.outvars[0].aval.size)
        elif called is not None:
            yield from _list_drawn(called)


_GIVEN = "random_bits"


class _Drawing:
    """Evaluates a jaxpr with given bits. `own` collects the first numbers that each draw would have
    got."""

    def __init__(self, jax: Any, bits: Sequence[Any]) -> None:
        self._jax, self._left = jax, iter(bits)
        self.own: list[Any] = []

    def evaluate(self, closed: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The outputs of the jaxpr."""
        jaxpr = getattr(closed, "jaxpr", closed)
        known = dict(zip(map(id, (*jaxpr.constvars, *jaxpr.invars)), (*consts, *args), strict=True))

        def read(variable: Any) -> Any:
            if not hasattr(variable, "val"):
                return known[id(variable)]
            return self._jax.numpy.asarray(variable.val, variable.aval.dtype)

        for equation in jaxpr.eqns:
            results = self._apply(equation, [read(each) for each in equation.invars])
            known.update(zip(map(id, equation.outvars), results, strict=True))
        return [read(each) for each in jaxpr.outvars]

    def _apply(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        called = find_inlined(equation)
        if called is not None:
            return self.evaluate(called, getattr(called, "consts", ()), values)
        results = bind_equation(equation, values)
        if equation.primitive.name == _GIVEN:
            (found,) = results
            self.own.append(found.reshape(-1)[:_SHOWN])
            return [next(self._left).reshape(found.shape).astype(found.dtype)]
        return results
