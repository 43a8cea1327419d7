"""Sets of inputs on the device that steps take in turn.

No step finds its input where the last one left it. The outputs reveal a step that does not read its
input, or that returns what it computed before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

T = TypeVar("T")


def roll(inputs: Mapping[str, np.ndarray], buffers: int) -> list[dict[str, np.ndarray]]:
    """Make `buffers` different sets of inputs, the first as given.

    The first array is moved on along its first axis. If that is too short, it is moved along its
    last one, or through all of its numbers. The others stay, so that images meet other
    labels: every set is another batch, and the same work.
    """
    sets = [dict(inputs) for _ in range(buffers)]
    for index, each in enumerate(sets[1:], start=1):
        for name in list(each)[:1]:
            each[name] = _move(each[name], index, buffers)
    return sets


def _move(array: np.ndarray, index: int, buffers: int) -> np.ndarray:
    import numpy as np

    if len(array) >= buffers:
        return np.roll(array, index * len(array) // buffers, axis=0)
    return np.roll(array, index, axis=-1 if array.shape[-1] >= buffers else None)


class Rotation(Generic[T]):
    """Buffers on the device. A step calls `take` for its inputs, which costs about 50 ns."""

    def __init__(self, buffers: Sequence[T]) -> None:
        self.buffers = tuple(buffers)
        self.take: Callable[[], T] = itertools.cycle(self.buffers).__next__

    def find_last(self) -> int:
        """Index of the buffer that was taken last; the next one is as before."""
        taken = [self.take() for _ in self.buffers]
        place = next(i for i, each in enumerate(self.buffers) if each is taken[0])
        return (place - 1) % len(self.buffers)

    def watch(self, step: Callable[[], object]) -> list[T]:
        """The buffers that steps really take: runs one step more than there are buffers."""
        taken: list[T] = []
        take = self.take

        def recorded() -> T:
            taken.append(take())
            return taken[-1]

        self.take = recorded
        for _ in range(len(self.buffers) + 1):
            step()
        self.take = take
        return taken
