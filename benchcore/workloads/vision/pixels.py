"""Training on image files: normalised pixels and an untrained network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from benchcore.program import Arrays, ByName
from benchcore.workloads.contract import TrainedImages
from benchcore.workloads.vision.case import Case, sketch

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""For ImageNet's channels scaled to 0..1, as in torchvision's recipes."""


def normalise(images: np.ndarray) -> np.ndarray:
    """(batch, height, width, 3) uint8 to (batch, 3, height, width) float32 around 0."""
    scaled = images.astype(np.float32) / np.float32(255)
    centred = (scaled - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return np.ascontiguousarray(centred.transpose(0, 3, 1, 2))


def make_seen(pixels: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Evidence of a step's inputs: pixels (batch, 3, height, width) as a sketch, and labels, which
    count from 1 here, because all zeros would prove nothing."""
    return {"pixels": sketch([pixels]), "labels": labels + 1}


def make_inputs_seen(inputs: Iterable[np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
    """The same of inputs that are not images."""
    return {"inputs": sketch(inputs), "labels": labels + 1}


def training_arrays(
    make_arrays: Callable[[Case, int], Arrays],
    case: Case,
    seed: int,
    batch: ByName,
) -> Arrays:
    """An untrained network, with the first batch as its inputs, on which the evidence is computed.

    Norms start as the identity and biases at 0. (The arrays of other cases serve to reveal errors:
    theirs are neither, and in fp32 they have a channel that loses digits.)
    """
    drawn = make_arrays(dataclasses.replace(case, precision="bf16"), seed).params
    return Arrays(
        params={name: _untrained(name, array) for name, array in drawn.items()},
        inputs={**batch, "images": normalise(batch["images"])},
    )


def trains_on(case: Case) -> TrainedImages:
    """Images of any side that all strides divide, of up to ImageNet's classes."""
    return TrainedImages(side=None, classes=1000)


def _untrained(name: str, array: np.ndarray) -> np.ndarray:
    part = name.rpartition(".")[2]
    if part == "running_var" or (part == "weight" and array.ndim == 1):
        return np.ones_like(array)
    return np.zeros_like(array) if part in ("running_mean", "bias", "in_proj_bias") else array
