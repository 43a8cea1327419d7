"""EfficientNet-B0, as torchvision defines it: cases, table of its layers, tolerances.

Canonical names are the keys of `torchvision.models.efficientnet_b0().state_dict()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchcore.workloads.vision import case as vision
from benchcore.workloads.vision.case import CLASSES, Case, make_cases
from benchcore.workloads.vision.inverted_residual import (
    Block,
    block_layers,
    make_divisible,
    side_after,
)
from benchcore.workloads.vision.layer_table import Layer, LayerTable, halved

SETTINGS = vision.take_defects(*vision.CONVOLUTIONAL)
CASES: dict[str, Case] = make_cases(
    tiny_batch={"infer": 2, "train": 4}, infer=(1, 8, 32, 128), train=(32,)
)
DROPOUT = 0.2
"""Before the last layer, in training. Timed steps include it, the evidence does not."""
STOCHASTIC_DEPTH = 0.2
"""Probability of dropping the last block; it rises linearly from 0 at the first one."""
STEM, HEAD = 32, 1280
"""Channels of the first and the last convolution."""
_ROWS = (
    # expansion, kernel, stride, outputs, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def stages() -> Iterator[list[Block]]:
    """The seven stages of blocks, first to last; the first block of each has the stage's stride.

    The squeeze is a quarter of a block's input channels, not of its expanded ones.
    """
    inputs, index, total = STEM, 0, sum(row[-1] for row in _ROWS)
    for number, (expansion, kernel, stride, outputs, count) in enumerate(_ROWS, 1):
        stage = []
        for place in range(count):
            stage.append(
                Block(
                    name=f"features.{number}.{place}",
                    inputs=inputs,
                    expanded=make_divisible(inputs * expansion),
                    outputs=outputs,
                    kernel=kernel,
                    stride=stride if place == 0 else 1,
                    squeezed=inputs // 4,
                    activation="silu",
                    gate="sigmoid",
                    drop_rate=STOCHASTIC_DEPTH * index / total,
                )
            )
            inputs, index = outputs, index + 1
        yield stage


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
    for block in (block for stage in stages() for block in stage):
        yield from block_layers(block, side)
        side = side_after(block, side)
    yield Layer(
        name="features.8.0", norm="features.8.1", inputs=320, outputs=HEAD, kernel=1, side=side
    )
    yield Layer(name="classifier.1", norm=None, inputs=HEAD, outputs=CLASSES, kernel=0)


def tolerances(case: Case) -> dict[str, float]:
    """Gradients of the two sides differ by 4e-6 to 3e-5 on CPUs: SiLU has no kink. Logits of
    compiled torch differ by 1.0e-5 from JAX's, and by 9e-6 from eager torch's, on an Intel Xeon."""
    return vision.tolerances(case, gradient=1e-3, logits=3e-5)


_TABLE = LayerTable(
    layers=layers,
    steep=("features.1.0.block.2.1", "features.2.0.block.0.0", "features.2.0.block.0.1"),
)
SPEC = _TABLE.make_spec(
    cases=CASES, tolerances=tolerances, settings=SETTINGS, proofs=vision.make_proofs()
)
"""A step has 0.386 G multiply-adds per image forward at 224 pixels, as in torchvision's table
(`EfficientNet_B0_Weights`, `_ops`)."""
