"""Which operations of a recorded step it could leave out, and which values count as equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchcore.cell.explain.products import Asked, Compiled, describe
from benchcore.cell.proof.following.needless import (
    TOO_LARGE,
    NearValues,
    Operation,
    Recorded,
    TooLargeError,
    describe_needless,
    list_needless,
)


def _operation(name: str, reads: str, results: str, call: object = None) -> Operation:
    return Operation(
        name=name, reads=tuple(reads), results=tuple(results), elements=10, call=call or object()
    )


def _list(
    operations: list[Operation], needed: str, overwritten: str = "", single: str = ""
) -> list[str]:
    recorded = Recorded(
        operations=operations, needed=needed, overwritten=overwritten, single=single
    )
    return [each.name for each in list_needless(recorded)]


def test_what_nothing_uses_is_needless_and_so_is_what_only_that_uses() -> None:
    sine, total = _operation("sine", "a", "b"), _operation("sum", "b", "c")
    assert _list([sine, total], "c") == []
    assert _list([sine, total, _operation("product", "a", "d")], "d") == ["sine", "sum"]


def test_what_was_there_before_is_needless_and_so_is_what_it_is_made_of() -> None:
    steps = [_operation("sine", "a", "b"), _operation("times zero", "b", "0")]
    steps.append(_operation("add", "a0", "a"))
    assert _list(steps, "a") == ["sine", "times zero", "add"]


def test_zeros_may_be_made_again_and_a_copy_of_what_is_overwritten_is_needed() -> None:
    zeros = [_operation("zeros", "", "0"), _operation("zeros", "", "0")]
    assert _list([*zeros, _operation("add", "0a", "b")], "b") == []
    copy = [_operation("copy", "a", "a"), _operation("write", "a", "b")]
    use = _operation("product", "ab", "c")
    assert _list([*copy, use], "c") == ["copy"]
    assert _list([*copy, use], "c", overwritten="a") == []


def test_equal_single_numbers_are_chance_unless_they_were_read_or_computed_again() -> None:
    """The norms of two gradients may agree to the last bit, on one kind of CPU and not another."""
    steps = [_operation("sum", "a", "s"), _operation("another sum", "b", "s")]
    steps.append(_operation("root", "s", "r"))
    assert _list(steps, "r") == ["another sum"] and _list(steps, "r", single="s") == []
    again = [steps[0], _operation("sum", "a", "s"), _operation("plus zero", "s", "s"), steps[2]]
    assert _list(again, "r", single="s") == ["sum", "plus zero"]


def test_operations_of_one_call_are_needless_together() -> None:
    scale = _operation("scale", "a", "a", call="linear")
    product = _operation("product", "a", "b", call="linear")
    assert _list([scale, product], "b") == []


def test_shares_are_of_what_moves_arrays() -> None:
    view = Operation(name="view", reads=("a",), results=("a",), elements=0, call=0)
    steps = [view, _operation("copy", "a", "a"), _operation("sine", "a", "b")]
    found = describe_needless(lambda: Recorded(operations=steps, needed="b", unusual=["x", "x"]))
    shares = {"elements": 0.5, "operations": 0.5, "nearly": 0.5, "copies": 0.0}
    assert found == {**shares, "names": ["copy"], "unusual": ["x"]}


def test_values_that_differ_in_their_last_digits_are_one_but_what_a_step_leaves_is_not() -> None:
    steps = [_operation("scale", "a", "b"), _operation("product", "b", "c")]

    def share(near: dict[str, str], needed: str = "c") -> float:
        recorded = Recorded(operations=steps, needed=needed, near=near)
        return describe_needless(lambda: recorded)["nearly"]

    assert [share({}), share({"b": "a"}), share({"b": "a"}, "bc")] == [0.0, 0.5, 0.0]


def test_arrays_that_are_near_have_the_same_projections() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    one = rng.standard_normal(200_000, dtype=np.float32)
    others = {
        "scaled": one * np.float32(1.000002),
        "rounded": np.log(np.exp(one.astype(np.float64))).astype(np.float32) + np.float32(1e-7),
        "another": rng.standard_normal(200_000, dtype=np.float32),
        "moved": np.roll(one, 1 << 16),
        "one digit more": one * np.float32(1.001),
        "few": one[:9] * np.float32(1.000001),
    }
    near = NearValues()
    near.add("one", one.size, lambda: one)
    near.add("few", 9, lambda: one[:9])
    for name, array in others.items():
        near.add(f"{name} later", array.size, lambda array=array: array)
    assert near.found == {"scaled later": "one", "rounded later": "one"}


def _ask() -> Asked:
    return Asked({}, None)


def test_a_step_whose_values_cannot_be_followed_names_the_reason() -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("no such primitive")

    compiled = Compiled(dtypes=(), share=1.0)
    found = describe(lambda: compiled, _ask, fail)
    assert found["needless"] is None
    assert found["missing"] == {"needless": "ValueError: no such primitive"}

    def refuse() -> dict[str, Any]:
        raise TooLargeError

    assert describe(lambda: compiled, _ask, refuse)["missing"] == {"needless": TOO_LARGE}
    assert describe(lambda: compiled, _ask, None)["missing"] == {
        "needless": "several devices share the step"
    }
