"""Whether a step takes longer on unseen inputs: then it returns stored results for others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from benchcore.cell.proof.left_behind import StepUnlikeProofError
from benchcore.program import ByName

if TYPE_CHECKING:
    import numpy as np

_FEWEST, _MOST, _LIMIT_S = 4, 16, 2.0
"""Pairs of steps, and the seconds after which no more than the fewest are taken."""
_LONGER = 1.5
_EXCUSED = 8
"""One pair in this many may have been disturbed."""
_MOST_UNSEEN, _UNSEEN_BYTES = 64, 1 << 24
T = TypeVar("T")


def check_fresh(take_ns: Callable[[T], int], seen: Sequence[T], fresh: Iterator[T]) -> None:
    """Time steps in pairs, one on inputs of the rotation and one on fresh ones, in turn first.

    Raises StepUnlikeProofError where the fresh ones take half as long again in all pairs but one in
    eight, which no noise does.
    """
    until, pairs, longer = time.monotonic() + _LIMIT_S, 0, 0
    while pairs < _FEWEST or (pairs < _MOST and time.monotonic() < until):
        both = [(next(fresh), 1), (seen[pairs % len(seen)], 0)]
        took = {which: take_ns(inputs) for inputs, which in both[:: 1 if pairs % 2 else -1]}
        longer += took[1] > _LONGER * took[0]
        pairs += 1
        if pairs - longer > _MOST // _EXCUSED:
            return  # whatever further pairs take, too few are left to refuse it
    if pairs - longer <= pairs // _EXCUSED:
        raise StepUnlikeProofError(
            f"{longer} of {pairs} steps took longer on inputs that the program had not seen: the "
            "timed step returns stored results"
        )


def choose_number(inputs: ByName, fewest: int, steps: int) -> int:
    """How many sets of inputs a short block takes: one for each of the `steps` of a timed block, as
    far as a cache of the CPU holds them."""
    num_bytes = sum(each.nbytes for each in inputs.values())
    return max(fewest, min(steps, _MOST_UNSEEN, _UNSEEN_BYTES // max(1, num_bytes)))


def list_fresh(inputs: ByName) -> Iterator[dict[str, np.ndarray]]:
    """Without end, inputs that no step has seen: floats a little larger each time. Without floats
    the first array is rolled. All are copies, which a test may destroy."""
    for index in count(1):
        floats = [name for name, array in inputs.items() if array.dtype.kind == "f"]
        if floats:
            factor = 1.0 + index / 1024
            changed = {name: (inputs[name] * factor).astype(inputs[name].dtype) for name in floats}
        else:
            name = next(iter(inputs))
            changed = {name: _roll(inputs[name], index)}
        yield {name: changed.get(name, array).copy() for name, array in inputs.items()}


def _roll(array: np.ndarray, index: int) -> np.ndarray:
    import numpy as np

    return np.roll(array, index)
