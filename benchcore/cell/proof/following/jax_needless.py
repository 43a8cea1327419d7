"""Records the operations of a JAX step. Its jaxpr runs once more and returns every value, or two
sums of each value's bits if all values would take too much memory. What XLA drops or merges by
itself is not recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, mul, sub
from typing import Any

from benchcore.cell.explain.jaxpr import (
    INLINED,
    bind_equation,
    find_inlined,
    list_inner,
    walk_equations,
)
from benchcore.cell.proof.following.needless import (
    CHOOSING,
    MOST_ELEMENTS,
    NearValues,
    Operation,
    Recorded,
    TooLargeError,
    list_needless,
)

_SAME = ("reshape", "squeeze", "expand_dims", "copy", "sharding_constraint", "stop_gradient")
"""What leaves the numbers of an array in their order."""
_FREE = (*_SAME, "broadcast_in_dim", "iota", "transpose", "slice", "rev")
"""What XLA makes part of other operations."""
_COPYING = ("concatenate", "dynamic_update_slice", "gather", "pad", "scatter", "stack")
_DRAWING = ("random_", "rng_", "threefry")
_CASTING = ("bitcast_convert_type", "convert_element_type")
_FENCES = ("optimization_barrier", "callback", "infeed", "outfeed", "hi_primitive", "ffi_call")
_CHECKPOINTS = ("checkpoint", "remat")
_WITH_INNER = ("cond", "pallas", "reduce", "scan", "scatter", "select_and", "sort", "while")
"""How the names of other operations begin that have programs within."""
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_MOST_BYTES = 1 << 30
_LONGEST = 2000
"""Characters of parameters that are compared."""


_NEUTRAL: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "add": (0.0, (0, 1)),
    "sub": (0.0, (1,)),
    "mul": (1.0, (0, 1)),
    "div": (1.0, (1,)),
}
"""The number that leaves another one as it is, and the operands that it may be."""


@dataclass(frozen=True)
class _Value:
    array: Any
    key: Hashable
    constant: float | None = None
    """The number that all its elements are, where the program shows that."""
    is_of_floats: bool = False
    """Whether integers were made of floats, so that work on them is no arithmetic of indices."""
    of_inputs: bool = False
    """Whether it was computed of the step's inputs, or drawn."""
    of_others: bool = False
    """Whether it was computed of other arrays that the step was given."""


@dataclass(frozen=True)
class _Row:
    """Stands for the values of an array in a key until they are known."""

    index: int


@dataclass(frozen=True, kw_only=True)
class _Entry:
    program: int
    name: str
    params: str
    reads: Sequence[Hashable]
    results: Sequence[Hashable]
    elements: int
    copies: bool
    moves: bool
    """Also what XLA leaves out within a larger program: alone it is a copy."""


def record(
    jax: Any, step: Callable[[], object], is_eager: bool = False, inputs: object = ()
) -> Recorded:
    """The operations of one step. `inputs` are the inputs that it may take; `is_eager` allows
    operations outside of compiled programs. Afterwards the program holds tracers until it is reset.
    Raises TooLargeError."""
    traced = jax.make_jaxpr(step)()
    given = {id(each) for each in jax.tree.leaves(inputs)}
    tracing = _Tracing(jax, [id(each) in given for each in traced.consts], is_eager=is_eager)
    lowered = jax.jit(lambda given: tracing.run(traced, given)).lower(traced.consts)
    if sum(each.elements for each in tracing.entries) > MOST_ELEMENTS:
        raise TooLargeError
    run = lowered.compile(compiler_options=FAST)
    arrays = jax.device_get(run(traced.consts))
    rows, near = [_hash(row) for row in arrays], NearValues()

    def resolve(key: Hashable) -> Hashable:
        if isinstance(key, _Row):
            return rows[key.index]
        return tuple(resolve(each) for each in key) if isinstance(key, tuple) else key

    operations, merged = [], set()
    for entry in tracing.entries:
        reads, results = (tuple(map(resolve, each)) for each in (entry.reads, entry.results))
        same = (entry.program, entry.name, entry.params, reads)
        elements = 0 if same in merged else entry.elements
        merged.add(same)
        operations.append(
            Operation(
                name=entry.name,
                reads=reads,
                results=results,
                elements=elements,
                copies=entry.copies,
                call=object(),
            )
        )
        for key, value in zip((*entry.reads, *entry.results), (*reads, *results), strict=True):
            _compare(near, key, value, arrays)
    needed = [resolve(each) for each in tracing.needed]
    recorded = Recorded(operations=operations, needed=needed, near=near.found)
    useless = set(map(id, list_needless(recorded)))
    works = [
        (entry.program, each.elements > 0 and id(each) not in useless)
        for entry, each in zip(tracing.entries, operations, strict=True)
        if entry.moves and not each.name.startswith(CHOOSING)
    ]
    moving, useful = {place for place, _ in works}, {place for place, use in works if use}
    needless = ["a needless program"] if moving - useful else []
    return replace(recorded, unusual=[*tracing.unusual, *needless])


def _compare(near: NearValues, key: Hashable, value: Hashable, arrays: Sequence[Any]) -> None:
    """Compare a value with earlier ones if all of its float32 numbers are known."""
    match key:
        case (_Row(index=index), "float32" as dtype, int(size)):
            if arrays[index].dtype == dtype and arrays[index].size == size:
                near.add(value, (dtype, size), lambda: arrays[index])


def _hash(row: Any) -> int:
    """Hash of the bytes. -0.0 counts as 0.0."""
    return hash((row if row.dtype.kind in "biu" else row + 0).tobytes())


class _Tracing:
    """Runs a jaxpr within a trace of JAX, equation by equation."""

    def __init__(self, jax: Any, are_inputs: Sequence[bool], *, is_eager: bool) -> None:
        self._jax, self._is_eager, self._are_inputs = jax, is_eager, are_inputs
        self._rows: list[Any] = []
        self._num_keys = 0
        self.entries: list[_Entry] = []
        self.needed: list[Hashable] = []
        self.unusual: list[str] = []

    def run(self, traced: Any, given: Sequence[Any]) -> list[Any]:
        """All arrays that have a row, or two sums of the bits of each."""
        consts = [
            replace(self._add(each), of_inputs=is_input, of_others=not is_input)
            for each, is_input in zip(given, self._are_inputs, strict=True)
        ]
        self.needed = [each.key for each in self._evaluate(traced, consts, [], None)]
        too_large = sum(each.size * each.dtype.itemsize for each in self._rows) > _MOST_BYTES
        return [_sum_bits(self._jax, each) for each in self._rows] if too_large else self._rows

    def _evaluate(
        self, closed: Any, consts: Sequence[_Value], args: Sequence[_Value], program: int | None
    ) -> list[_Value]:
        """The outputs. Outside of a `program` each equation is a program, and runs even if nothing
        uses it."""
        jaxpr = getattr(closed, "jaxpr", closed)
        known = dict(zip(map(id, (*jaxpr.constvars, *jaxpr.invars)), (*consts, *args), strict=True))

        def read(variable: Any) -> _Value:
            if not hasattr(variable, "val"):
                return known[id(variable)]
            array = self._jax.numpy.asarray(variable.val)
            key = ("literal", str(variable.val), str(array.dtype))
            is_real = array.ndim == 0 and array.dtype.kind in "iuf"
            return _Value(array, key, float(variable.val) if is_real else None)

        for place, equation in _list_live(jaxpr, whole=program is None):
            values = [read(each) for each in equation.invars]
            here = place if program is None else program
            outputs = self._apply(equation, values, here, alone=program is None)
            known.update(zip(map(id, equation.outvars), outputs, strict=True))
        return [read(each) for each in jaxpr.outvars]

    def _apply(
        self, equation: Any, values: Sequence[_Value], program: int, *, alone: bool
    ) -> list[_Value]:
        name, params = equation.primitive.name, equation.params
        self.unusual += filter(None, map(_describe_unusual, _walk(equation, name not in INLINED)))
        inner = find_inlined(equation)
        if inner is not None:
            consts = [self._add(each) for each in getattr(inner, "consts", ())]
            return self._evaluate(inner, consts, values, program)
        arrays = bind_equation(equation, [each.array for each in values])
        constant, left = _fold(name, values), _find_unchanged(name, params, values)
        of_floats = self._is_of_floats(name, values)
        named = [self._name(name, params, values, each) for each in arrays]
        of_inputs = name.startswith(_DRAWING) or any(each.of_inputs for each in values)
        of_others = any(each.of_others for each in values)
        outputs = [
            replace(each, is_of_floats=of_floats, of_inputs=of_inputs, of_others=of_others)
            for each in named
        ]
        elements = self._count_moved(name, [each.array for each in values], outputs)
        moves = elements > 0
        if constant is not None or left is not None:  # XLA leaves it out
            outputs, elements = [replace(outputs[0], constant=constant)], 0
        if left is not None:
            outputs = [replace(outputs[0], key=left.key)]
        if alone and elements > 1 and not self._is_eager:
            self.unusual.append(f"{name} outside of a compiled program")
        text = str(params)
        self.entries.append(
            _Entry(
                program=program,
                name=name,
                params=text if len(text) < _LONGEST else self._make_key(),
                reads=[each.key for each in values],
                results=[each.key for each in outputs],
                elements=elements,
                copies=of_others and not of_inputs and name in _COPYING,
                moves=moves,
            )
        )
        return outputs

    def _name(
        self, name: str, params: Mapping[str, Any], values: Sequence[_Value], array: Any
    ) -> _Value:
        if name in _SAME:
            return _Value(array, values[0].key)
        if name in ("broadcast_in_dim", "iota"):
            return _Value(array, (name, *(each.key for each in values), str(params)))
        return self._add(array)

    def _add(self, array: Any) -> _Value:
        """A value that is identified by its contents. Single numbers and random keys are identified
        by themselves."""
        dtypes = self._jax.dtypes
        if array.size <= 1 or dtypes.issubdtype(array.dtype, dtypes.extended):
            return _Value(array, self._make_key())
        self._rows.append(array)
        return _Value(array, (_Row(len(self._rows) - 1), str(array.dtype), int(array.size)))

    def _is_of_floats(self, name: str, values: Sequence[_Value]) -> bool:
        numpy = self._jax.numpy
        casts = name in _CASTING and numpy.issubdtype(values[0].array.dtype, numpy.inexact)
        return casts or any(each.is_of_floats for each in values)

    def _count_moved(self, name: str, reads: Sequence[Any], results: Sequence[_Value]) -> int:
        """Elements of the largest array. 0 for indices: JAX itself computes with them, such as
        negative ones."""
        arrays = [each.array for each in results]
        largest = max((each.size for each in (*reads, *arrays)), default=0)
        numpy = self._jax.numpy
        computes = any(
            numpy.issubdtype(each.array.dtype, numpy.inexact)
            or (each.is_of_floats and numpy.issubdtype(each.array.dtype, numpy.integer))
            for each in results
        )
        sums_nothing = name.startswith("reduce_") and largest == arrays[0].size
        return int(largest) if computes and name not in _FREE and not sums_nothing else 0

    def _make_key(self) -> str:
        self._num_keys += 1
        return f"value {self._num_keys}"


def _fold(name: str, values: Sequence[_Value]) -> float | None:
    """The constant that an operation computes from constants: JAX's `uniform` has `floats * (1 -
    0)`."""
    numbers = [each.constant for each in values]
    if None in numbers or not numbers:
        return None
    if name in (*_SAME, "broadcast_in_dim", "convert_element_type"):
        return numbers[0]
    return _FOLDED[name](*numbers) if name in _FOLDED else None


_FOLDED: Mapping[str, Callable[..., float]] = {"add": add, "sub": sub, "mul": mul}


def _walk(equation: Any, inside: bool) -> Iterator[Any]:
    """An equation, and with `inside` also those within it."""
    yield equation
    for jaxpr in list_inner(equation) if inside else ():
        yield from walk_equations(jaxpr)


def _describe_unusual(equation: Any) -> str:
    """Name of a fence, or of an operation that hides its work. In a gradient JAX puts fences around
    what `jax.checkpoint` computes again, so that XLA can't use the earlier results."""
    name, params = equation.primitive.name, equation.params
    is_again = name.startswith(_CHECKPOINTS) and params.get("differentiated")
    if is_again and params.get("prevent_cse", True):
        return f"{name}, which computes known values again"
    hides = name not in INLINED and not name.startswith(_WITH_INNER)
    if hides and any(list_inner(equation)):
        return f"{name}, whose work can't be followed"
    return name if any(each in name for each in _FENCES) else ""


def _find_unchanged(
    name: str, params: Mapping[str, Any], values: Sequence[_Value]
) -> _Value | None:
    """The operand that an operation leaves unchanged, so that XLA's simplifier drops the operation:
    optax's Adam has `g**1` and `nu + 0.0`."""
    if name == "integer_pow":
        return values[0] if params["y"] == 1 else None
    neutral, places = _NEUTRAL.get(name, (None, ()))
    for place in places:
        if values[place].constant == neutral:
            return values[1 - place]
    return None


def _list_live(jaxpr: Any, *, whole: bool) -> Iterator[tuple[int, Any]]:
    """Equations with their positions, without those that a compiler drops."""
    needed = {id(each) for each in jaxpr.outvars}
    live = []
    for place, equation in reversed(list(enumerate(jaxpr.eqns))):
        if whole or equation.effects or any(id(each) in needed for each in equation.outvars):
            needed.update(map(id, equation.invars))
            live.append((place, equation))
    yield from reversed(live)


def _sum_bits(jax: Any, array: Any) -> Any:
    numpy, lax = jax.numpy, jax.lax
    flat = array.reshape(-1)
    if numpy.iscomplexobj(flat):
        flat = numpy.concatenate([flat.real, flat.imag])
    if numpy.issubdtype(flat.dtype, numpy.floating):
        flat = lax.bitcast_convert_type(flat.astype(numpy.float32) + 0.0, numpy.uint32)
    bits, place = flat.astype(numpy.uint32), lax.iota(numpy.uint32, flat.size)
    one = place * numpy.uint32(0x9E3779B1) + numpy.uint32(0x85EBCA77)
    other = (place ^ (place >> 7)) * numpy.uint32(0xC2B2AE3D) + numpy.uint32(0x27D4EB2F)
    sums = [(bits * one).sum(), ((bits ^ (bits >> 15)) * other).sum()]
    return numpy.stack([each.astype(numpy.uint32) for each in sums])
