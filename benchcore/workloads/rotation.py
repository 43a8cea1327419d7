"""Input buffers that steps use in rotation, so that no step finds its input in a cache.

Needed where a step's inputs and activations fit in a cache: micro-operations and small networks.
The activations of a convolutional network evict its input in any case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


def roll(inputs: Mapping[str, np.ndarray], buffers: int) -> list[dict[str, np.ndarray]]:
    """`buffers` sets of inputs: the first as given, in the others the examples are shifted.

    All arrays of a set are shifted equally along their first axis, so labels stay with their
    images and every set is the same work.
    """
    return [
        {name: np.roll(array, index * len(array) // buffers, axis=0) if index else array
         for name, array in inputs.items()}
        for index in range(buffers)
    ]  # fmt: skip


class Rotation(Generic[T]):
    """Buffers on the device. A step calls `take` for its inputs, which costs about 50 ns."""

    def __init__(self, buffers: Sequence[T]) -> None:
        self.buffers = tuple(buffers)
        self.take: Callable[[], T] = itertools.cycle(self.buffers).__next__

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
