"""The convolutional network of PyTorch's MNIST example, without its dropout: two convolutions, one
pooling, two matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchcore.program import ByName
from benchcore.workloads.contract import TrainedImages
from benchcore.workloads.networks.case import Case, Network, Product, make_cases
from benchcore.workloads.networks.settings import IMAGE_SETTINGS
from benchcore.workloads.networks.training_arrays import training_arrays
from benchcore.workloads.proof_inputs.kinks import choose_spread, leave_in_chain

SETTINGS = IMAGE_SETTINGS
CLASSES = 10
KERNEL = 3


@dataclass(frozen=True, kw_only=True)
class Widths:
    """An image's side, the channels of both convolutions, and the hidden layer's width."""

    side: int
    channels: tuple[int, int]
    hidden: int

    @property
    def pooled_side(self) -> int:
        """The side after two convolutions without padding and pooling by two."""
        return (self.side - 4) // 2

    @property
    def flat(self) -> int:
        """Features of an image before the first matrix product."""
        return self.channels[1] * self.pooled_side**2


SIZES: Mapping[str, Widths] = {
    "tiny": Widths(side=12, channels=(4, 6), hidden=16),
    "base": Widths(side=28, channels=(32, 64), hidden=128),
    "large": Widths(side=28, channels=(128, 256), hidden=512),
}


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    widths = SIZES[case.size]
    first, second = widths.channels
    return {
        "conv1.weight": (first, 1, KERNEL, KERNEL),
        "conv1.bias": (first,),
        "conv2.weight": (second, first, KERNEL, KERNEL),
        "conv2.bias": (second,),
        "fc1.weight": (widths.hidden, widths.flat),
        "fc1.bias": (widths.hidden,),
        "fc2.weight": (CLASSES, widths.hidden),
        "fc2.bias": (CLASSES,),
    }


def _products(case: Case) -> list[Product]:
    widths = SIZES[case.size]
    first, second = widths.channels
    taps = KERNEL**2
    return [
        Product(macs=(widths.side - 2) ** 2 * first * taps, gradients=1),
        Product(macs=(widths.side - 4) ** 2 * second * first * taps),
        Product(macs=widths.flat * widths.hidden),
        Product(macs=widths.hidden * CLASSES),
    ]


def _make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`images` (batch, 1, side, side) float32, standard normal; `labels` (batch,) int32."""
    side = SIZES[case.size].side
    return {
        "images": rng.standard_normal((case.batch, 1, side, side), dtype=np.float32),
        "labels": rng.integers(0, CLASSES, case.batch, dtype=np.int32),
    }


def _leave_kinks(case: Case, params: ByName) -> ByName:
    layers = ("conv1", "conv2", "fc1", "fc2")
    return leave_in_chain(params, layers, choose_spread(case.use_case))


NETWORK = Network(
    shapes=_shapes,
    products=_products,
    make_inputs=_make_inputs,
    gradient_tolerance=1e-4,
    leave_kinks=_leave_kinks,
)
CASES = make_cases(infer=(1, 8, 32, 128), train=(32, 128), per_sample=(32, 128), clip=10.0)
SPEC = NETWORK.make_spec(
    CASES,
    SETTINGS,
    make_training_arrays=training_arrays,
    trains_on=lambda case: TrainedImages(side=SIZES[case.size].side, classes=CLASSES),
)
