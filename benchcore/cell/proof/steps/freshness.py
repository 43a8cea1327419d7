"""Checks whether a step takes longer on unseen inputs: such a step returns stored results for
inputs that it knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.program import ByName

if TYPE_CHECKING:
    import numpy as np

_FEWEST, _MOST, _LIMIT_S = 8, 16, 2.0
"""Pairs of steps, and the seconds after which no more than the fewest are taken."""
_LONGER = 1.5
_EXCUSED = 8
"""One pair in this many may have been disturbed."""
_MOST_UNSEEN, _UNSEEN_BYTES = 64, 1 << 24
T = TypeVar("T")


def check_fresh(take_ns: Callable[[T], int], seen: Sequence[T], fresh: Iterator[T]) -> None:
    """Time pairs of steps: one step on inputs of the rotation, one on fresh inputs, each first in
    turn.

    Raises StepUnlikeProofError if the fresh inputs take half as long again in all pairs but one in
    eight. Noise does not do that.
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
    """Number of input sets of a short block: one per step of a timed block, as far as they fit into
    a CPU's cache, and at least `fewest`."""
    num_bytes = sum(each.nbytes for each in inputs.values())
    return max(fewest, min(steps, _MOST_UNSEEN, _UNSEEN_BYTES // max(1, num_bytes)))


def list_fresh(inputs: ByName) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs that no step has seen, without end. Floats get a little larger each time;
    without floats the first array is rolled. All arrays are copies."""
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
