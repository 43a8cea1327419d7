"""The ResNet of the CIFAR-10 experiments of He et al. (2016), with projections as shortcuts.

Batch norms have no gradient of a single sample, as they mix samples: for per-sample gradients the
norms are group norms (De et al., 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchcore.program import ByName
from benchcore.workloads.contract import TrainedImages
from benchcore.workloads.networks.case import Case, Network, Product, make_cases
from benchcore.workloads.networks.settings import IMAGE_SETTINGS
from benchcore.workloads.networks.training_arrays import training_arrays
from benchcore.workloads.proof_inputs.kinks import AWAY, centre, choose_spread, leave_in_stage

SETTINGS = IMAGE_SETTINGS
CLASSES = 10
GROUPS = 4
EPSILON = 1e-5
_SMALL = 1e-3
NORM_MOMENTUM = 0.1
"""Momentum of the running statistics: torch's default."""


@dataclass(frozen=True, kw_only=True)
class Widths:
    """An image's side, the blocks of a stage, and the channels of the first of three stages."""

    side: int
    blocks: int
    channels: int


SIZES: Mapping[str, Widths] = {
    "tiny": Widths(side=8, blocks=1, channels=8),
    "base": Widths(side=32, blocks=3, channels=16),
    "large": Widths(side=32, blocks=3, channels=64),
}
"""`base` is ResNet-20; `large` is four times as wide."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Two 3x3 convolutions with norms; `side` is that of its output."""

    name: str
    inputs: int
    outputs: int
    stride: int
    side: int

    @property
    def projects(self) -> bool:
        """Whether the shortcut is a 1x1 convolution with a norm."""
        return self.inputs != self.outputs


def list_blocks(case: Case) -> Iterator[Block]:
    """The blocks in forward order. Each stage but the first halves the side and doubles the
    channels."""
    widths = SIZES[case.size]
    inputs = widths.channels
    for stage in range(3):
        for index in range(widths.blocks):
            outputs = widths.channels * 2**stage
            yield Block(
                name=f"layer{stage + 1}.{index}",
                inputs=inputs,
                outputs=outputs,
                stride=2 if stage and not index else 1,
                side=widths.side // 2**stage,
            )
            inputs = outputs


def has_batch_norms(case: Case) -> bool:
    """Whether the network has batch norms, not group norms."""
    return case.use_case != "per_sample_grad" and case.devices == 1


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    parts = ["weight", "bias"]
    if has_batch_norms(case):
        parts += ["running_mean", "running_var"]
    width = SIZES[case.size].channels

    def norm(name: str, features: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.{part}": (features,) for part in parts}

    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (width, 3, 3, 3)}
    shapes |= norm("norm1", width)
    for block in list_blocks(case):
        shapes[f"{block.name}.conv1.weight"] = (block.outputs, block.inputs, 3, 3)
        shapes |= norm(f"{block.name}.norm1", block.outputs)
        shapes[f"{block.name}.conv2.weight"] = (block.outputs, block.outputs, 3, 3)
        shapes |= norm(f"{block.name}.norm2", block.outputs)
        if block.projects:
            shapes[f"{block.name}.projection.weight"] = (block.outputs, block.inputs, 1, 1)
            shapes |= norm(f"{block.name}.norm3", block.outputs)
    return shapes | {"fc.weight": (CLASSES, 4 * width), "fc.bias": (CLASSES,)}


def _products(case: Case) -> Iterator[Product]:
    widths = SIZES[case.size]
    yield Product(macs=widths.side**2 * widths.channels * 27, gradients=1)
    for block in list_blocks(case):
        taps = 9 * (block.inputs + block.outputs) + (block.inputs if block.projects else 0)
        yield Product(macs=block.side**2 * block.outputs * taps)
    yield Product(macs=4 * widths.channels * CLASSES)


def _make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`images` (batch, 3, side, side) float32, standard normal; `labels` (batch,) int32."""
    side = SIZES[case.size].side
    return {
        "images": rng.standard_normal((case.batch, 3, side, side), dtype=np.float32),
        "labels": rng.integers(0, CLASSES, case.batch, dtype=np.int32),
    }


def _is_of_norm(name: str) -> bool:
    return "norm" in name and name.endswith(("weight", "bias"))


def _leave_kinks(case: Case, params: ByName) -> ByName:
    """The stem's norm is the first that the first stage adds up."""
    spread = np.float32(choose_spread(case.use_case))
    params = {
        name: array * (spread if _is_of_norm(name) else np.float32(1.0))
        for name, array in params.items()
    }
    blocks, away = [block.name for block in list_blocks(case)], float(AWAY * spread)
    for stage in ("layer1", "layer2", "layer3"):
        own = [name for name in blocks if name.startswith(stage)]
        sums = [*(["norm1"] if stage == "layer1" else []), *(f"{name}.norm2" for name in own)]
        norms = [*sums, *(f"{name}.norm1" for name in own)]
        params = leave_in_stage(params, norms, sums, away, away)
    is_on = params[f"{blocks[-1]}.norm2.bias"] > 0
    params = {**params, "fc.weight": centre(params["fc.weight"], is_on)}
    return params if has_batch_norms(case) else _shrink_first_group(params)


def _shrink_first_group(params: ByName) -> ByName:
    """Let the stem's first group have a variance below its epsilon, so that 1 % of that shows."""
    kernels = params["conv1.weight"].copy()
    kernels[: len(kernels) // GROUPS] *= np.float32(_SMALL)
    return {**params, "conv1.weight": kernels}


NETWORK = Network(
    shapes=_shapes,
    products=_products,
    make_inputs=_make_inputs,
    normed=True,
    gradient_tolerance=1e-4,
    leave_kinks=_leave_kinks,
)
CASES = make_cases(infer=(1, 8, 32, 128), train=(32, 128), per_sample=(32, 128), clip=9.25)
SPEC = NETWORK.make_spec(
    CASES,
    SETTINGS,
    make_training_arrays=training_arrays,
    trains_on=lambda case: TrainedImages(side=SIZES[case.size].side, classes=CLASSES),
)
