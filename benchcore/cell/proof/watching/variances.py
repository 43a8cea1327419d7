"""Finds variances in one pass: E[x^2] - E[x]^2. They read an array once instead of twice, and lose
all digits where the mean is far from zero, as no proof input of a network makes it everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchcore.cell.explain.jaxpr import find_inlined, list_inner

Kind = str
"""What is known of a value: `constant`, `square`, `sum`, `sum of squares`, `square of a sum` or
`one pass`. A mean is a sum times a constant."""
_SUMS = ("mean", "reduce_sum", "sum")
_DIFFERENCES = ("add", "add_any", "sub")
_PASSING = (
    "_to_copy", "broadcast_in_dim", "clone", "convert_element_type", "copy", "div", "expand_dims",
    "mul", "neg", "reshape", "squeeze", "transpose",
)  # fmt: skip
"""What leaves a value what it was, if all other operands are constants."""


def find_kind(name: str, operands: Sequence[Kind | None], *, is_square: bool) -> Kind | None:
    """The kind of an operation's result. `is_square`: it multiplies its operand by itself."""
    others = [each for each in operands if each != "constant"]
    if operands and not others:
        return "constant"
    if is_square or (name == "mul" and others == ["sum", "sum"]):
        return "square of a sum" if others[0] == "sum" else "square"
    if name in _DIFFERENCES and {"sum of squares", "square of a sum"} == set(others):
        return "one pass"
    if len(others) != 1:
        return None
    if name in _SUMS:
        return "sum of squares" if others[0] in ("square", "sum of squares") else "sum"
    return others[0] if name in _PASSING else None


def list_in_jaxpr(traced: Any) -> list[int]:
    """The sizes of the variances in one pass of a step of JAX."""
    found: list[int] = []
    _follow(getattr(traced, "jaxpr", traced), [None] * len(traced.in_avals), found)
    return found


def _follow(jaxpr: Any, given: Sequence[Kind | None], found: list[int]) -> list[Kind | None]:
    """The kinds of the results of a jaxpr that is called with arguments of these kinds."""
    kinds: dict[Any, Kind | None] = dict(zip(jaxpr.invars, given, strict=True))

    def read(variable: Any) -> Kind | None:
        return "constant" if hasattr(variable, "val") else kinds.get(variable)

    for equation in jaxpr.eqns:
        operands, inlined = [read(each) for each in equation.invars], find_inlined(equation)
        if inlined is not None:
            inner = getattr(inlined, "jaxpr", inlined)
            kinds.update(zip(equation.outvars, _follow(inner, operands, found), strict=True))
            continue
        for inner in list_inner(equation):
            closed = getattr(inner, "jaxpr", inner)
            _follow(closed, [None] * len(closed.invars), found)
        name = equation.primitive.name
        kind = find_kind(name, operands, is_square=_is_square(equation))
        if kind == "one pass":
            found.append(int(equation.outvars[0].aval.size))
        kinds.update(dict.fromkeys(equation.outvars, kind))
    return [read(each) for each in jaxpr.outvars]


def _is_square(equation: Any) -> bool:
    name, operands = equation.primitive.name, equation.invars
    if name == "mul":
        return operands[0] is operands[1]
    return name == "square" or (name == "integer_pow" and equation.params["y"] == 2)


class InOperators:
    """Follows the operators of a step of torch. Values are known by their storages, which views
    share."""

    def __init__(self) -> None:
        self._kinds: dict[int, Kind | None] = {}
        self.found: list[int] = []

    def see(self, name: str, args: Sequence[Any], read: Sequence[Any], made: Sequence[Any]) -> None:
        """Record an operator that computes, by name: its arguments, the tensors among these, and
        those that it made or changed."""
        name = name.strip("_") if name != "_to_copy" else name
        operands = [self._kinds.get(each.untyped_storage()._cdata) for each in read]
        is_square = name == "square"
        if len(args) > 1:
            is_square |= name == "pow" and args[1] == 2
            is_square |= name == "mul" and args[0] is args[1]
        kind = find_kind(name, operands[:1] if is_square else operands, is_square=is_square)
        for each in made:
            self._kinds[each.untyped_storage()._cdata] = kind
            if kind == "one pass":
                self.found.append(each.numel())
