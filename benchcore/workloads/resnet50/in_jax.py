"""ResNet-50 v1.5 in Flax NNX, after torchvision's definition. Works on NHWC images."""

from __future__ import annotations

import jax
from flax import nnx

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.resnet50.spec import EXPANSION, SETTINGS, STAGES, Stage
from benchcore.workloads.vision import in_jax as vision
from benchcore.workloads.vision.case import CLASSES, Case
from benchcore.workloads.vision.layers.in_jax import Layers, Noise


class Bottleneck(nnx.Module):
    """1x1, 3x3 (with the stride: v1.5) and 1x1 convolutions, and the residual connection."""

    def __init__(self, inputs: int, width: int, *, stride: int, layers: Layers) -> None:
        outputs = width * EXPANSION
        first, second = (stride, 1) if "v1-stride" in layers.defects else (1, stride)
        self.conv1 = layers.conv(inputs, width, kernel=1, stride=first)
        self.bn1 = layers.norm(width)
        self.conv2 = layers.conv(width, width, kernel=3, stride=second)
        self.bn2 = layers.norm(width)
        self.conv3 = layers.conv(width, outputs, kernel=1)
        self.bn3 = layers.norm(outputs)
        self.downsample = nnx.List([])  # the identity, where the shapes allow it
        if inputs != outputs:
            self.downsample.append(layers.conv(inputs, outputs, kernel=1, stride=stride))
            self.downsample.append(layers.norm(outputs))

    def __call__(self, value: jax.Array) -> jax.Array:
        """(batch, height, width, inputs) to (batch, height / stride, width / stride, outputs)."""
        around = value
        for layer in self.downsample:
            around = layer(around)
        value = nnx.relu(self.bn1(self.conv1(value)))
        value = nnx.relu(self.bn2(self.conv2(value)))
        return nnx.relu(self.bn3(self.conv3(value)) + around)


class ResNet50(nnx.Module):
    """Attributes have torchvision's names, so a path in the state is a canonical name."""

    def __init__(self, *, layers: Layers) -> None:
        self.conv1 = layers.conv(3, 64, kernel=7, stride=2)
        self.bn1 = layers.norm(64)
        inputs = 64
        for stage in STAGES:
            setattr(self, stage.name, _stage(stage, inputs, layers))
            inputs = stage.width * EXPANSION
        self.fc = layers.linear(inputs, CLASSES)

    def __call__(self, images: jax.Array, noise: Noise | None) -> jax.Array:
        """Images (batch, height, width, 3) to logits (batch, classes). It has no dropout."""
        value = nnx.relu(self.bn1(self.conv1(images)))
        value = nnx.max_pool(value, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for stage in STAGES:
            for block in getattr(self, stage.name):
                value = block(value)
        return self.fc(value.mean(axis=(1, 2)))


def _stage(stage: Stage, inputs: int, layers: Layers) -> nnx.List:
    first = Bottleneck(inputs, stage.width, stride=stage.stride, layers=layers)
    outputs = stage.width * EXPANSION
    rest = [
        Bottleneck(outputs, stage.width, stride=1, layers=layers) for _ in range(stage.blocks - 1)
    ]
    return nnx.List([first, *rest])


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    return vision.build(
        case,
        arrays,
        settings,
        make=lambda layers: ResNet50(layers=layers),
        options=SETTINGS["jax"],
    )
