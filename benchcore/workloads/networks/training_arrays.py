"""Training on images: an untrained network, and the first batch as its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.networks.case import Case
from benchcore.workloads.vision import pixels


def training_arrays(
    make_arrays: Callable[[Case, int], Arrays],
    case: Case,
    seed: int,
    images: np.ndarray,
    labels: np.ndarray,
) -> Arrays:
    """As of the vision workloads; a network with one channel takes the first of each image."""
    channels = make_arrays(case, seed).inputs["images"].shape[1]
    made: Any = pixels.training_arrays(make_arrays, case, seed, images, labels)  # type: ignore[arg-type]
    first = np.ascontiguousarray(made.inputs["images"][:, :channels])
    return Arrays(params=made.params, inputs={**made.inputs, "images": first})
