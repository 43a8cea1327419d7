"""ResNet-50 v1.5, as torchvision defines it: cases, table of its layers, tolerances.

Canonical names are the keys of `torchvision.models.resnet50().state_dict()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchcore.program import ByName
from benchcore.workloads.proof_inputs import kinks
from benchcore.workloads.vision import case as vision
from benchcore.workloads.vision.case import CLASSES, Case, make_cases
from benchcore.workloads.vision.layer_table import Layer, LayerTable, halved

SETTINGS = vision.take_defects("v1-stride", *vision.CONVOLUTIONAL)
EXPANSION = 4
"""A bottleneck block has four times its width as outputs."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of bottleneck blocks; the first block's 3x3 convolution has the stride (v1.5)."""

    name: str
    width: int
    blocks: int
    stride: int


STAGES = (
    Stage(name="layer1", width=64, blocks=3, stride=1),
    Stage(name="layer2", width=128, blocks=4, stride=2),
    Stage(name="layer3", width=256, blocks=6, stride=2),
    Stage(name="layer4", width=512, blocks=3, stride=2),
)


CASES: dict[str, Case] = make_cases(
    tiny_batch={"infer": 2, "train": 4}, infer=(1, 4, 8, 32, 128), train=(32,)
)


def layers(side: int) -> Iterator[Layer]:
    """Every layer in torchvision's order, for square images with `side` pixels per side.

    The last batch norm of a block's branch, and that of its shortcut, have small scales. This keeps
    the sum over 16 blocks, and so the logits, of the order of 1.
    """
    side = halved(side)
    yield Layer(name="conv1", norm="bn1", inputs=3, outputs=64, kernel=7, stride=2, side=side)
    inputs, side = 64, halved(side)  # the max-pool
    for stage in STAGES:
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            yield from _bottleneck(f"{stage.name}.{index}", inputs, stage.width, side, stride)
            inputs, side = stage.width * EXPANSION, side if stride == 1 else halved(side)
    yield Layer(name="fc", norm=None, inputs=inputs, outputs=CLASSES, kernel=0)


def _bottleneck(prefix: str, inputs: int, width: int, side: int, stride: int) -> Iterator[Layer]:
    after, outputs = side if stride == 1 else halved(side), width * EXPANSION
    rows = [
        ("conv1", "bn1", inputs, width, 1, 1, side, 1.0),
        ("conv2", "bn2", width, width, 3, stride, after, 1.0),
        ("conv3", "bn3", width, outputs, 1, 1, after, 0.25),
        ("downsample.0", "downsample.1", inputs, outputs, 1, stride, after, 0.7),
    ]
    for name, norm, fan_in, fan_out, kernel, step, out_side, scale in rows[
        : 4 if inputs != outputs else 3
    ]:
        yield Layer(
            name=f"{prefix}.{name}",
            norm=f"{prefix}.{norm}",
            inputs=fan_in,
            outputs=fan_out,
            kernel=kernel,
            stride=step,
            side=out_side,
            norm_scale=scale,
        )


def tolerances(case: Case) -> dict[str, float]:
    """Both sides' gradients differ by 2e-7 to 2e-5 on CPUs, updates by 2e-5 and ten steps by 9e-5,
    where the late ReLUs are far from their kinks. A unit near zero rounds either way, and moves the
    gradient by up to 8e-3: see `kinks`."""
    return vision.tolerances(case, gradient=1e-3)


def leave_kinks(case: Case, params: ByName) -> ByName:
    """Move the late stages away from kinks: there one unit changes the gradient most."""
    for stage in STAGES[2:]:
        blocks = [f"{stage.name}.{index}" for index in range(stage.blocks)]
        norms = [f"{block}.bn{place}" for block in blocks for place in (1, 2, 3)]
        sums = [f"{block}.bn3" for block in blocks]
        small = kinks.AWAY / 3  # as their scales are
        params = kinks.leave_in_stage(params, norms, sums, kinks.AWAY, small)
    return params


_TABLE = LayerTable(
    layers=layers,
    steep=("layer1.0.bn2", "layer1.0.conv3", "layer1.0.bn3"),
)
SPEC = _TABLE.make_spec(
    cases=CASES,
    tolerances=tolerances,
    leave_kinks=leave_kinks,
    settings=SETTINGS,
    proofs=vision.make_proofs(),
)
"""A step has 4.089 G multiply-adds per image forward at 224 pixels, as in torchvision's table
(`ResNet50_Weights`, `_ops`)."""
