"""Whether a program places its inputs by where their numbers stand, and not by what they are.

Numbers that were sorted or grouped as they were placed are numbers that were given: comparing
arrays (see `given`) can't show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.program import ByName

if TYPE_CHECKING:
    import numpy as np

BY_VALUE = "numbers that are placed by their values"
_MOST_MARKED = 1 << 23
"""Numbers; float32 holds two marks for each."""


def describe_placing(
    place: Callable[[ByName], object], inputs: ByName, *, exact: bool = True
) -> str | None:
    """The manifest's reading of a program whose `place` orders or chooses numbers by their values;
    None = it does not, or it can't be known: of more than 8 million numbers, and of small integers.

    It places marks, each number another one, and then other marks: every number must move to where
    the mark in its place moved. What is the same both times depends on no value. Where a precision
    isn't `exact`, it holds no large marks: it places their digits one after the other.
    """
    import numpy as np

    total = sum(each.size for each in inputs.values())
    if not 0 < total <= _MOST_MARKED or any(each.itemsize < 4 for each in inputs.values()):
        return None
    order = np.random.Generator(np.random.PCG64(total)).permutation(total)
    first, second = np.arange(1, total + 1), total + 1 + order
    try:
        digits = 1 if exact else len(_split(2 * total))
        placed = [_place(place, inputs, each, digits) for each in (first, second)]
    except Exception:  # noqa: BLE001 - whatever a program does with numbers that it did not expect
        return BY_VALUE
    shapes = [[each.shape for each in arrays] for arrays in placed]
    moves = np.concatenate([[0], second])
    fair = shapes[0] == shapes[1] and all(
        np.all((b == a) | (b == moves[np.clip(a, 0, total)])) for a, b in zip(*placed, strict=True)
    )
    return None if fair else BY_VALUE


_BASE = 128
"""Marks below it are bfloat16 numbers."""


def _split(number: int) -> list[int]:
    """Its digits, the smallest first."""
    return [number % _BASE, *(_split(number // _BASE) if number >= _BASE else ())]


def _place(
    place: Callable[[ByName], object], inputs: ByName, marks: np.ndarray, digits: int
) -> list[np.ndarray]:
    """The marks as they were placed, together or by their digits."""
    if digits == 1:
        return _read(place(_mark(inputs, marks)))
    powers = [_BASE**digit for digit in range(digits)]
    placed = [_read(place(_mark(inputs, marks // each % _BASE))) for each in powers]
    whole = placed[0]
    for power, parts in zip(powers[1:], placed[1:], strict=True):
        whole = [each + power * part for each, part in zip(whole, parts, strict=True)]
    return whole


def _mark(inputs: ByName, marks: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays like the inputs, with these marks in order."""
    found, begin = {}, 0
    for name, array in inputs.items():
        of_this = marks[begin : begin + array.size]
        found[name] = of_this.reshape(array.shape).astype(array.dtype)
        begin += array.size
    return found


def _read(placed: object) -> list[np.ndarray]:
    return [copy_to_host(each).astype("i8") for each in list_arrays(placed)]
