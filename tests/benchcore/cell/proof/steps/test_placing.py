"""A program may place its inputs in any layout, but not in an order that depends on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchcore.cell.proof.steps.placing import (
    BY_VALUE,
    CUT_UP,
    describe_axes,
    describe_inputs,
    describe_placing,
)
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


_RNG = np.random.Generator(np.random.PCG64(3))
_BATCH = {
    "images": _RNG.standard_normal((4, 3, 8, 8), dtype=np.float32),
    "labels": _RNG.integers(0, 10, 100, dtype=np.int32),
}
_IMAGES, _LABELS = _BATCH.values()
_PATCHES = _IMAGES.reshape(4, 3, 2, 4, 2, 4).transpose(0, 2, 4, 1, 3, 5)


@pytest.mark.parametrize(
    "placed",
    [
        [_IMAGES, _LABELS],
        [np.ascontiguousarray(_IMAGES.transpose(0, 2, 3, 1)), _LABELS.astype(np.int64)],
        [_IMAGES.reshape(4, -1), np.float32(7)],
        [_IMAGES.transpose(0, 2, 1, 3)[:, ::-1, :, ::-1], _LABELS],
        [_IMAGES[:1], np.concatenate([_IMAGES[1:], 0 * _IMAGES[:1]])],
    ],
    ids=("as they are", "in another order", "in one row", "mirrored", "in runs, and padded"),
)
def test_inputs_may_stand_in_another_order_of_axes(placed: list[np.ndarray]) -> None:
    assert describe_axes(placed, _BATCH) is None


@pytest.mark.parametrize(
    "placed",
    [
        [np.ascontiguousarray(_PATCHES)],
        [_IMAGES, _IMAGES],
        [_IMAGES, _IMAGES[:2]],
        [np.eye(10, dtype=np.float32)[_LABELS]],
        [np.eye(10, dtype=bool)[_LABELS[:4]]],
        [_IMAGES * 2],
    ],
    ids=("patches", "twice", "a part twice", "rows of labels", "few rows", "scaled"),
)
@pytest.mark.parametrize("exact", [True, False])
def test_inputs_that_are_cut_up_or_repeated_are_named(
    placed: list[np.ndarray], exact: bool
) -> None:
    assert describe_axes(placed, _BATCH, exact=exact) == CUT_UP
    assert describe_inputs(lambda inputs: placed, {**_BATCH, "bytes": np.zeros(9, np.uint8)})


def test_inputs_may_be_rounded_where_a_precision_rounds_them() -> None:
    rounded = [np.float32(np.float16(_IMAGES)), _LABELS]
    assert describe_axes(rounded, _BATCH, exact=False) is None
    assert describe_axes(rounded, _BATCH) == CUT_UP


@pytest.mark.parametrize("exact", [True, False])
def test_a_late_run_of_a_long_array_is_found(exact: bool) -> None:
    """Many numbers of a long array are close to the first one of a run, as in `recompile`."""
    rows = np.random.default_rng(7).standard_normal((20_000, 8)).astype(np.float32)
    placed = [rows[:9_000], np.pad(rows[9_000:15_000], ((0, 50), (0, 0))), rows[15_000:]]
    assert describe_axes(placed, {"rows": rows}, exact=exact) is None
    assert describe_axes([*placed, rows[-1:]], {"rows": rows}, exact=exact) == CUT_UP
