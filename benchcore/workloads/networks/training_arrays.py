"""Training on a data set: an untrained network, and the first batch as its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchcore.program import Arrays, ByName
from benchcore.workloads.networks.case import Case
from benchcore.workloads.vision import pixels

_SHRUNK = np.float32(0.41)
"""PyTorch starts with a deviation of 1/sqrt(3 inputs), the seeded weights of convolutions
have sqrt(2 / inputs). From these, training `mnist_cnn` on MNIST jumps to a loss of 70 in its second
step, and rounding decides what is learnt: 10 % on one side, 89 % on the other."""


def training_arrays(
    make_arrays: Callable[[Case, int], Arrays], case: Case, seed: int, batch: ByName
) -> Arrays:
    """For images as in the vision workloads; a network with one channel takes the first of each.
    Other networks keep their seeded weights."""
    drawn = make_arrays(case, seed)
    if "images" not in batch:
        return Arrays(params=drawn.params, inputs=batch)
    channels = drawn.inputs["images"].shape[1]
    made: Any = pixels.training_arrays(make_arrays, case, seed, batch)  # type: ignore[arg-type]
    first = np.ascontiguousarray(made.inputs["images"][:, :channels])
    params = {
        name: array * _SHRUNK if array.ndim > 1 else array for name, array in made.params.items()
    }
    return Arrays(params=params, inputs={**made.inputs, "images": first})
