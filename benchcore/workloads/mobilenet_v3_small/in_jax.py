"""MobileNetV3-Small in Flax NNX, after torchvision's definition. Works on NHWC images."""

from __future__ import annotations

from dataclasses import replace

import jax
from flax import nnx

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.mobilenet_v3_small.spec import (
    DROPOUT,
    HEAD,
    HIDDEN,
    NORM_EPSILON,
    NORM_MOMENTUM,
    SETTINGS,
    STEM,
    blocks,
)
from benchcore.workloads.vision import in_jax as vision
from benchcore.workloads.vision.case import CLASSES, Case
from benchcore.workloads.vision.layers.in_jax import (
    InvertedResidual,
    Layers,
    Noise,
    chain,
    drop_elements,
)


class MobileNetV3Small(nnx.Module):
    """Attributes have torchvision's names, so a path in the state is a canonical name."""

    def __init__(self, *, layers: Layers) -> None:
        layers = replace(layers, epsilon=NORM_EPSILON, momentum=NORM_MOMENTUM)
        body = [InvertedResidual(block, layers=layers) for block in blocks()]
        first = layers.conv_norm(3, STEM, kernel=3, stride=2)
        last = layers.conv_norm(body[-1].spec.outputs, HEAD, kernel=1)
        self.features = nnx.List([first, *body, last])
        self.classifier = nnx.Dict(
            {"0": layers.linear(HEAD, HIDDEN), "3": layers.linear(HIDDEN, CLASSES)}
        )

    def __call__(self, images: jax.Array, noise: Noise | None) -> jax.Array:
        """Images (batch, height, width, 3) to logits (batch, classes)."""
        first, *body, last = self.features
        value = jax.nn.hard_swish(chain(first, images))
        for block in body:
            value = block(value, noise)
        value = jax.nn.hard_swish(chain(last, value)).mean(axis=(1, 2))
        value = jax.nn.hard_swish(self.classifier["0"](value))
        return self.classifier["3"](drop_elements(value, DROPOUT, noise))


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    return vision.build(
        case,
        arrays,
        settings,
        make=lambda layers: MobileNetV3Small(layers=layers),
        options=SETTINGS["jax"],
    )
