"""Checks how a program places its inputs: by position, not by value, and each of them once, with
whole axes.

Numbers that were sorted, grouped or repeated while they were placed are still numbers that were
given, so comparing arrays (see `given`) can't show it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.program import ByName

if TYPE_CHECKING:
    import numpy as np

BY_VALUE = "numbers that are placed by their values"
CUT_UP = "inputs that are cut up, repeated or made into others"
_FEW = 64
"""Numbers that are compared first."""
_MOST_COMPARED = 1 << 30
"""Bytes of all inputs."""
_OFF = 2**-8
"""Relative, of numbers that were rounded to bfloat16."""
_MOST_PLACES = 8
"""Where a run of given numbers may begin, by its first ones."""
_MOST_MARKED = 1 << 23
"""Numbers; float32 holds two marks for each."""


def describe_inputs(
    place: Callable[[ByName], object], inputs: ByName, *, exact: bool = True
) -> str | None:
    """The manifest's reading of how a program places its inputs; None if it is fair."""
    return describe_placing(place, inputs, exact=exact) or describe_axes(
        list_arrays(place(inputs)), inputs, exact=exact
    )


def describe_axes(placed: Iterable[Any], inputs: ByName, *, exact: bool = True) -> str | None:
    """The manifest's reading of inputs that are cut up, repeated or changed; None if there are
    none.

    Fair are arrays as they were given, with axes in another order or direction, whole or in runs of
    rows that zeros may follow, each once. So images must not be placed as patches, nor labels as
    rows of zeros and ones: both would be work of the step.
    """
    if sum(each.nbytes for each in inputs.values()) > _MOST_COMPARED:
        return None
    used: Counter[str] = Counter()
    for each in placed:
        if math.prod(each.shape) <= 1:
            continue  # such as a count
        found = _find_origin(copy_to_host(each).reshape(-1), inputs, exact=exact)
        if found is None:
            return CUT_UP
        name, size = found
        used[name] += size
    return CUT_UP if any(used[name] > inputs[name].size for name in used) else None


def check_sent(sent: object, given: ByName) -> None:
    """Raises StepUnlikeProofError where a program sends other arrays to its device than the loader
    has `given`, such as normalised images: in two of three data modes no clock runs meanwhile."""
    arrays = list(list_arrays(sent))
    dtypes = {str(each.dtype).rpartition(".")[2] for each in arrays}
    if not dtypes <= {str(each.dtype) for each in given.values()} or describe_axes(arrays, given):
        raise StepUnlikeProofError(
            "a batch is not sent to the device as the loader gave it: the training leaves work to "
            "functions that are not timed"
        )


def _find_origin(flat: np.ndarray, inputs: ByName, *, exact: bool) -> tuple[str, int] | None:
    """The input that these numbers come from, and how many of its numbers they are."""
    import numpy as np

    def is_same(some: np.ndarray, others: np.ndarray) -> bool:
        if exact or len(some) != len(others):
            return np.array_equal(some, others)
        return bool((abs(some - others) <= _OFF * abs(others)).all())

    def widen(array: np.ndarray) -> np.ndarray:
        kind = array.dtype.kind
        return array.astype({"f": np.float32, "c": np.complex64}.get(kind, np.int64), copy=False)

    flat = widen(flat)
    for name, given in inputs.items():
        given = widen(given)
        for moved in _list_moved(given) if given.size == flat.size else ():
            if is_same(flat[:_FEW], moved.flat[:_FEW]) and is_same(flat, moved.reshape(-1)):
                return name, given.size
    run = np.trim_zeros(flat, "b")
    for name, given in inputs.items():
        row = widen(given).reshape(-1)
        for begin in _find_begins(run, row, off=0.0 if exact else _OFF)[:_MOST_PLACES]:
            if is_same(run, row[begin : begin + len(run)]):
                return name, len(run)
    return None


def _find_begins(run: np.ndarray, row: np.ndarray, *, off: float) -> np.ndarray:
    """Positions in `row` at which the first numbers of `run` are found. `off` is the allowed
    relative difference."""
    import numpy as np

    def is_close(some: np.ndarray, number: float) -> np.ndarray:
        return abs(some - number) <= off * abs(number)

    if not len(run):
        return np.arange(0)
    begins = np.flatnonzero(is_close(row[: max(0, len(row) - len(run) + 1)], run[0]))
    for place, number in enumerate(run[:_FEW]):
        begins = begins[is_close(row[begins + place], number)]
    return begins


def _list_moved(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array with its axes in every order and direction."""
    for directions in product((1, -1), repeat=array.ndim):
        turned = array[tuple(slice(None, None, each) for each in directions)]
        yield from (turned.transpose(order) for order in permutations(range(array.ndim)))


def describe_placing(
    place: Callable[[ByName], object], inputs: ByName, *, exact: bool = True
) -> str | None:
    """The manifest's reading of a program whose `place` orders or chooses numbers by their values.
    None if it does not, or if that can't be known: with more than 8 million numbers, or small
    integers.

    Places marks that are all different, and then other marks. Every mark must move to the same
    position both times; what is equal both times depends on no value. A precision that is not
    `exact` holds no large marks: their digits are placed one after the other.
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
    """The digits of a mark, the smallest first."""
    return [number % _BASE, *(_split(number // _BASE) if number >= _BASE else ())]


def _place(
    place: Callable[[ByName], object], inputs: ByName, marks: np.ndarray, digits: int
) -> list[np.ndarray]:
    """The marks as they were placed, whole or by their digits."""
    if digits == 1:
        return _read(place(_mark(inputs, marks)))
    powers = [_BASE**digit for digit in range(digits)]
    placed = [_read(place(_mark(inputs, marks // each % _BASE))) for each in powers]
    whole = placed[0]
    for power, parts in zip(powers[1:], placed[1:], strict=True):
        whole = [each + power * part for each, part in zip(whole, parts, strict=True)]
    return whole


def _mark(inputs: ByName, marks: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays like the inputs, filled with these marks in order."""
    found, begin = {}, 0
    for name, array in inputs.items():
        of_this = marks[begin : begin + array.size]
        found[name] = of_this.reshape(array.shape).astype(array.dtype)
        begin += array.size
    return found


def _read(placed: object) -> list[np.ndarray]:
    return [copy_to_host(each).astype("i8") for each in list_arrays(placed)]
