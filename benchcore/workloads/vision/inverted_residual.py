"""The block of MobileNetV3 and EfficientNet: its dimensions and its rows of the layer table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchcore.workloads.vision.layer_table import Layer, halved

Activation = Literal["relu", "silu", "hard_swish"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Channels and kernel of a block called `name`; `squeezed` 0 = no squeeze-and-excitation.

    `drop_rate` is the probability that stochastic depth drops the block in training.
    """

    name: str
    inputs: int
    expanded: int
    outputs: int
    kernel: int
    stride: int
    squeezed: int
    activation: Activation
    gate: Literal["sigmoid", "hard_sigmoid"]
    drop_rate: float = 0.0

    @property
    def expands(self) -> bool:
        """Whether there is a 1x1 convolution before the depthwise one."""
        return self.expanded != self.inputs

    @property
    def is_residual(self) -> bool:
        """Whether the input is added to the output."""
        return self.stride == 1 and self.inputs == self.outputs


def make_divisible(channels: float) -> int:
    """The nearest multiple of 8 that is at least nine tenths of `channels`."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def side_after(block: Block, side: int) -> int:
    """The side of a block's output."""
    return side if block.stride == 1 else halved(side)


def block_layers(block: Block, side: int) -> Iterator[Layer]:
    """The block's layers in torchvision's order; `side` is that of its input."""
    prefix, after, index = f"{block.name}.block", side_after(block, side), 0
    wide = block.expanded
    if block.expands:
        yield _conv(f"{prefix}.0", block.inputs, wide, side)
        index = 1
    yield Layer(
        name=f"{prefix}.{index}.0",
        norm=f"{prefix}.{index}.1",
        inputs=wide,
        outputs=wide,
        kernel=block.kernel,
        stride=block.stride,
        side=after,
        groups=wide,
    )
    if block.squeezed:
        index += 1
        for name, inputs, outputs in (("fc1", wide, block.squeezed), ("fc2", block.squeezed, wide)):
            yield Layer(
                name=f"{prefix}.{index}.{name}", norm=None, inputs=inputs, outputs=outputs, kernel=1
            )
    # Compensates for the gate and the residual sum. With scales 1.5 times as large, activations
    # grow with depth to gates of 200, and a sigmoid multiplies its input's relative error by that.
    scale = 0.5 if block.is_residual else 1.0
    yield _conv(f"{prefix}.{index + 1}", wide, block.outputs, after, norm_scale=scale)


def _conv(name: str, inputs: int, outputs: int, side: int, *, norm_scale: float = 1.0) -> Layer:
    return Layer(
        name=f"{name}.0",
        norm=f"{name}.1",
        inputs=inputs,
        outputs=outputs,
        kernel=1,
        side=side,
        norm_scale=norm_scale,
    )
