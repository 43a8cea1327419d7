"""Counts and initial arrays of a convolutional network, from one table of its layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.vision.case import CLASSES, Case, is_statistic, make_inputs, make_spec
from benchcore.workloads.vision.pixels import training_arrays, trains_on

STEEPNESS = 600.0
"""Mean of the steep channel in standard deviations: E[x^2] - E[x]^2 has no digits left there,
while the two-pass variance has most of them."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution, or with `kernel` 0 a matrix product, and the batch norm after it.

    Without a norm it has a bias. `side` is that of its output; `norm_scale` is the centre of the
    norm's initial scales.
    """

    name: str
    norm: str | None
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    side: int = 1
    groups: int = 1
    norm_scale: float = 1.0

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The weight's shape in torch's layout."""
        matrix = (self.outputs, self.inputs // self.groups)
        return (*matrix, self.kernel, self.kernel) if self.kernel else matrix

    @property
    def macs(self) -> int:
        """Multiply-adds for one image, padded taps included."""
        return math.prod(self.weight_shape) * self.side**2


Layers = Iterable[Layer]


def halved(side: int) -> int:
    """The side after a stride of 2 with symmetric padding (kernel - 1) / 2."""
    return (side + 1) // 2


def parameter_shapes(layers: Layers) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter and running statistic, in torchvision's order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        shapes[f"{layer.name}.weight"] = layer.weight_shape
        if layer.norm is None:
            shapes[f"{layer.name}.bias"] = (layer.outputs,)
        else:
            for part in ("weight", "bias", "running_mean", "running_var"):
                shapes[f"{layer.norm}.{part}"] = (layer.outputs,)
    return shapes


def num_parameters(layers: Layers) -> int:
    """Number of trainable parameters, without the running statistics."""
    shapes = parameter_shapes(layers).items()
    return sum(math.prod(shape) for name, shape in shapes if not is_statistic(name))


def _steepen(params: Mapping[str, np.ndarray], norm: str, conv: str, after: str) -> None:
    """Make the norm's channel 0 steep: channel 0 of the convolution reads it, and nothing else.

    Its rounding errors, STEEPNESS times those of the others, end at the norm that follows.
    """
    params[f"{norm}.weight"][0] = 0.1
    params[f"{norm}.bias"][0] = 0.1 * STEEPNESS
    weight = params[f"{conv}.weight"]
    weight[0, :] = weight[:, 0] = 0.0
    weight[0, 0] = 11.0  # a variance of 1.21
    params[f"{after}.weight"][0] = 0.0


def _products(case: Case, layer: Layer, index: int) -> int:
    if case.use_case == "infer":
        return layer.macs
    return layer.macs * (2 if index == 0 else 3)


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """The counts and arrays in the spec of a convolutional network. `layers`: image side -> layers.

    `steep` names a batch norm, the 1x1 convolution that reads it, and the batch norm after that. In
    fp32_ieee training they form a channel whose mean is STEEPNESS standard deviations. It reveals a
    variance computed as E[x^2] - E[x]^2.
    """

    layers: Callable[[int], Layers]
    steep: tuple[str, str, str]

    def make_spec(self, **others: Any) -> Spec:
        """The spec of the network; `others` are its cases, tolerances, settings and proofs."""
        return make_spec(
            make_arrays=self.make_arrays,
            flops=self.flops,
            least_bytes=self.least_bytes,
            state_dict_shapes=self.state_dict_shapes,
            winograd_share=self.winograd_share,
            make_training_arrays=training_arrays,
            trains_on=trains_on,
            **others,
        )

    def state_dict_shapes(self, case: Case) -> dict[str, tuple[int, ...]]:
        """Shapes in a state dict of parameters and statistics, as a checkpoint has them."""
        return parameter_shapes(self.layers(case.side))

    def make_arrays(self, case: Case, seed: int) -> Arrays:
        """He-normal weights, inputs, and running statistics far from 0 and 1, because freshly
        initialised ones hide mapping errors."""
        layers = list(self.layers(case.side))
        rng = np.random.Generator(np.random.PCG64(seed))
        scales = {layer.norm: layer.norm_scale for layer in layers}
        matrices = {layer.name for layer in layers if not layer.kernel}
        params: dict[str, np.ndarray] = {}
        for name, shape in parameter_shapes(layers).items():
            owner, _, part = name.rpartition(".")
            if part == "running_var":
                params[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            elif part == "weight" and len(shape) == 1:
                centre = scales[owner]
                params[name] = rng.uniform(0.8 * centre, 1.2 * centre, shape).astype(np.float32)
            else:
                normal = rng.standard_normal(shape, dtype=np.float32)
                gain = 1.0 if owner in matrices else 2.0
                scale = 0.2 if len(shape) == 1 else math.sqrt(gain / math.prod(shape[1:]))
                params[name] = normal * np.float32(scale)
        inputs = make_inputs(case, rng)
        if case.use_case == "train" and case.precision == "fp32_ieee":
            _steepen(params, *self.steep)
        return Arrays(params=params, inputs=inputs)

    def flops(self, case: Case) -> int:
        """Operations of a step's convolutions and matrix products; one multiply-add counts as two.

        Forward: one product per layer. Backward: one for the weights of every layer, and one for
        the input of every layer but the first. Norms, activations, pooling and the optimizer (under
        1 to 2 %) are left out for both frameworks.
        """
        layers = enumerate(self.layers(case.side))
        return 2 * case.batch * sum(_products(case, layer, index) for index, layer in layers)

    def winograd_share(self, case: Case) -> float:
        """The share of FLOPs in 3x3 convolutions of stride 1."""
        savable = sum(
            _products(case, layer, index)
            for index, layer in enumerate(self.layers(case.side))
            if layer.kernel == 3 and layer.stride == 1
        )
        return 2 * case.batch * savable / self.flops(case)

    def least_bytes(self, case: Case) -> int:
        """Bytes a step must move to or from memory.

        Infer: parameters and images in, logits out. Train: parameters, momentum and running
        statistics in and out, images and labels in, the loss out. Activations are left out: perfect
        fusion and a large enough cache could keep them on the chip.
        """
        layers = list(self.layers(case.side))
        held = 2 if case.precision == "bf16" else 4
        numbers = sum(math.prod(shape) for shape in parameter_shapes(layers).values())
        images = case.batch * 3 * case.side**2
        if case.use_case == "train":
            state = 2 * (numbers + num_parameters(layers))
            return held * (state + images) + 4 * case.batch + 4
        computed = 2 if case.precision.startswith("bf16") else 4
        return held * (numbers + images) + computed * case.batch * CLASSES
