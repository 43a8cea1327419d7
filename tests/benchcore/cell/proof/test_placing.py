"""A program may place its inputs in any layout, but not in an order that depends on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchcore.cell.proof.placing import BY_VALUE, describe_placing
from benchcore.program import ByName

_INPUTS = {
    "images": np.zeros((3, 4, 5), np.float32),
    "targets": np.zeros((3, 7), np.int32),
}


def _sort_edges(inputs: ByName) -> object:
    order = np.argsort(inputs["targets"], axis=1)
    return inputs["images"], np.take_along_axis(inputs["targets"], order, 1)


@pytest.mark.parametrize(
    "place",
    [
        dict,
        lambda inputs: [each.T.copy() for each in inputs.values()],
        lambda inputs: [np.pad(each, 2).astype(np.float64) for each in inputs.values()],
        lambda inputs: (inputs["images"][:2], inputs["targets"][:, ::-1]),
        lambda inputs: np.concatenate([each.ravel() for each in inputs.values()]),
        lambda inputs: (inputs, np.ones((3, 7), bool), np.arange(20)),
    ],
    ids=("as they are", "transposed", "padded", "in parts", "packed", "with a mask"),
)
@pytest.mark.parametrize("exact", [True, False])
def test_inputs_may_be_placed_in_any_layout(place: Callable[[ByName], object], exact: bool) -> None:
    assert describe_placing(place, _INPUTS, exact=exact) is None


@pytest.mark.parametrize(
    "place",
    [
        _sort_edges,
        lambda inputs: [np.sort(each, axis=None) for each in inputs.values()],
        lambda inputs: np.sort(inputs["images"], axis=1)[:, ::-1],
        lambda inputs: inputs["images"][inputs["images"] > 30],
        lambda inputs: np.zeros(9)[inputs["targets"]],
        lambda inputs: inputs["images"] + 1,
    ],
    ids=("by another array", "sorted", "in rows", "chosen", "looked up", "computed"),
)
@pytest.mark.parametrize("exact", [True, False])
def test_numbers_that_are_placed_by_their_values_are_named(
    place: Callable[[ByName], object], exact: bool
) -> None:
    assert describe_placing(place, _INPUTS, exact=exact) == BY_VALUE


def test_digits_are_placed_where_a_precision_holds_no_large_numbers() -> None:
    def place(inputs: ByName) -> object:
        return [np.float32(np.float16(each)) for each in inputs.values()]

    many = {"images": np.zeros((70, 70), np.float32)}
    assert describe_placing(place, many, exact=False) is None
    assert describe_placing(place, many) == BY_VALUE


def test_nothing_is_known_of_small_integers_and_of_no_inputs() -> None:
    assert describe_placing(np.sort, {"bytes": np.zeros(9, np.uint8)}) is None
    assert describe_placing(dict, {}) is None
