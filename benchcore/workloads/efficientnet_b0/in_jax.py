"""EfficientNet-B0 in Flax NNX, after torchvision's definition. Works on NHWC images."""

from __future__ import annotations

import jax
from flax import nnx

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.efficientnet_b0.spec import DROPOUT, HEAD, SETTINGS, STEM, stages
from benchcore.workloads.vision import in_jax as vision
from benchcore.workloads.vision.case import CLASSES, Case
from benchcore.workloads.vision.layers.in_jax import (
    InvertedResidual,
    Layers,
    Noise,
    chain,
    drop_elements,
)


class EfficientNetB0(nnx.Module):
    """Attributes have torchvision's names, so a path in the state is a canonical name."""

    def __init__(self, *, layers: Layers) -> None:
        rows = list(stages())
        body = [nnx.List([InvertedResidual(block, layers=layers) for block in row]) for row in rows]
        first = layers.conv_norm(3, STEM, kernel=3, stride=2)
        last = layers.conv_norm(rows[-1][-1].outputs, HEAD, kernel=1)
        self.features = nnx.List([first, *body, last])
        self.classifier = nnx.Dict({"1": layers.linear(HEAD, CLASSES)})

    def __call__(self, images: jax.Array, noise: Noise | None) -> jax.Array:
        """Images (batch, height, width, 3) to logits (batch, classes)."""
        first, *body, last = self.features
        value = jax.nn.silu(chain(first, images))
        for row in body:
            for block in row:
                value = block(value, noise)
        value = jax.nn.silu(chain(last, value)).mean(axis=(1, 2))
        return self.classifier["1"](drop_elements(value, DROPOUT, noise))


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    return vision.build(
        case,
        arrays,
        settings,
        make=lambda layers: EfficientNetB0(layers=layers),
        options=SETTINGS["jax"],
    )
