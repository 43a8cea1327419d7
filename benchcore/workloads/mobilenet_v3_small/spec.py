"""MobileNetV3-Small, as torchvision defines it: cases, table of its layers, tolerances.

Canonical names are the keys of `torchvision.models.mobilenet_v3_small().state_dict()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchcore.program import ByName
from benchcore.workloads.vision import case as vision
from benchcore.workloads.vision.case import CLASSES, Case, make_cases
from benchcore.workloads.vision.inverted_residual import (
    Activation,
    Block,
    block_layers,
    make_divisible,
    side_after,
)
from benchcore.workloads.vision.layer_table import Layer, LayerTable, halved

SETTINGS = vision.take_defects("plain-sigmoid", *vision.CONVOLUTIONAL)
CASES: dict[str, Case] = make_cases(
    tiny_batch={"infer": 2, "train": 4}, infer=(1, 8, 32, 128), train=(32,)
)
DROPOUT = 0.2
"""Before the last layer, in training. Timed steps include it, the evidence does not."""
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.01
STEM, HEAD, HIDDEN = 16, 576, 1024
"""Channels of the first and the last convolution, and between the two matrix products."""
_ROWS: tuple[tuple[int, int, int, bool, Activation, int], ...] = (
    # kernel, expanded, outputs, squeezes, activation, stride
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hard_swish", 2),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 120, 48, True, "hard_swish", 1),
    (5, 144, 48, True, "hard_swish", 1),
    (5, 288, 96, True, "hard_swish", 2),
    (5, 576, 96, True, "hard_swish", 1),
    (5, 576, 96, True, "hard_swish", 1),
)


def blocks() -> Iterator[Block]:
    """The eleven blocks, from the first to the last."""
    inputs = STEM
    for index, (kernel, expanded, outputs, squeezes, activation, stride) in enumerate(_ROWS, 1):
        yield Block(
            name=f"features.{index}",
            inputs=inputs,
            expanded=expanded,
            outputs=outputs,
            kernel=kernel,
            stride=stride,
            squeezed=make_divisible(expanded // 4) if squeezes else 0,
            activation=activation,
            gate="hard_sigmoid",
        )
        inputs = outputs


def layers(side: int) -> Iterator[Layer]:
    """Every layer in torchvision's order, for square images with `side` pixels per side."""
    side = halved(side)
    yield Layer(
        name="features.0.0",
        norm="features.0.1",
        inputs=3,
        outputs=STEM,
        kernel=3,
        stride=2,
        side=side,
    )
    for block in blocks():
        yield from block_layers(block, side)
        side = side_after(block, side)
    yield Layer(
        name="features.12.0", norm="features.12.1", inputs=96, outputs=HEAD, kernel=1, side=side
    )
    yield Layer(name="classifier.0", norm=None, inputs=HEAD, outputs=HIDDEN, kernel=0)
    yield Layer(name="classifier.3", norm=None, inputs=HIDDEN, outputs=CLASSES, kernel=0)


def tolerances(case: Case) -> dict[str, float]:
    """Gradients of the two sides differ by 2e-6 to 5e-5 on CPUs: few units have a kink."""
    return vision.tolerances(case, gradient=1e-3)


def _stay(case: Case, params: ByName) -> ByName:
    """Kinks of a hard swish are mild, so that usual gradients differ by 7e-6; only where values are
    large, by 6e-3."""
    return params


_TABLE = LayerTable(
    layers=layers,
    steep=("features.1.block.2.1", "features.2.block.0.0", "features.2.block.0.1"),
)
SPEC = _TABLE.make_spec(
    cases=CASES,
    tolerances=tolerances,
    leave_kinks=_stay,
    settings=SETTINGS,
    proofs=vision.make_proofs(),
)
"""A step has 0.057 G multiply-adds per image forward at 224 pixels, as in torchvision's table
(`MobileNet_V3_Small_Weights`, `_ops`)."""
