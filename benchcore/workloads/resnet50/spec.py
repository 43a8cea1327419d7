"""ResNet-50 v1.5 inference, as torchvision defines it: cases, parameter table, arrays, counts.

Canonical names are the keys of `torchvision.models.resnet50().state_dict()`, canonical layouts are
torch's: convolutions (out, in, high, wide), images (batch, channel, high, wide). The counters
`num_batches_tracked` are left out: inference does not read them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchcore.program import Arrays, Precision
from benchcore.workloads.settings import JAX_OPTIONS, TORCH_IMAGE_OPTIONS, Options

SETTINGS: Mapping[str, Options] = {"jax": JAX_OPTIONS, "torch": TORCH_IMAGE_OPTIONS}

CLASSES = 1000
EXPANSION = 4
"""A bottleneck block puts out four times its width."""
NUM_PARAMETERS = 25_557_032
"""Of torchvision's model; the table below is asserted against it."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A row of bottleneck blocks; the stride is that of the first one's 3x3 convolution (v1.5)."""

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


@dataclass(frozen=True, kw_only=True)
class Case:
    """`side` is the height and width of an image in pixels."""

    use_case: Literal["infer"]
    batch: int
    precision: Precision
    side: int


def _make_cases(precision: Precision) -> dict[str, Case]:
    """IEEE float32 goes without saying; any other precision ends the name."""
    end = "" if precision == "fp32_ieee" else f"_{precision}"
    sized = {
        f"infer_b{batch}{end}": Case(use_case="infer", batch=batch, precision=precision, side=224)
        for batch in (1, 4, 8, 32, 128)
    }
    if precision == "tf32":  # tiny cases are for CPUs, which have none
        return sized
    tiny = Case(use_case="infer", batch=2, precision=precision, side=64)
    return {f"tiny_infer{end}": tiny, **sized}


CASES: dict[str, Case] = {
    name: case for precision in get_args(Precision) for name, case in _make_cases(precision).items()
}


@dataclass(frozen=True, kw_only=True)
class _Convolution:
    """A bias-free convolution with the batch norm after it, and the side of what it puts out."""

    name: str
    norm: str
    inputs: int
    outputs: int
    kernel: int
    side: int


def make_arrays(case: Case, seed: int) -> Arrays:
    """He-normal weights, running statistics far from 0 and 1 (fresh ones hide mapping errors).

    The batch norms that end a block's two ways have small scales, so that the sum over 16 blocks
    stays of the order of one, and so do the logits. Input: `images` (batch, 3, side, side) float32.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    params = {name: _initial(rng, name, shape) for name, shape in parameter_shapes().items()}
    shape = (case.batch, 3, case.side, case.side)
    images = rng.standard_normal(shape, dtype=np.float32)
    return Arrays(params=params, inputs={"images": images})


def _initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name.endswith("running_var"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1 and name.endswith("weight"):
        centre = 0.25 if ".bn3." in name else 0.7 if ".downsample." in name else 1.0
        return rng.uniform(0.8 * centre, 1.2 * centre, shape).astype(np.float32)
    normal = rng.standard_normal(shape, dtype=np.float32)
    fan_in = math.prod(shape[1:])
    scale = 0.2 if len(shape) == 1 else math.sqrt((1.0 if name == "fc.weight" else 2.0) / fan_in)
    return normal * np.float32(scale)


def parameter_shapes() -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter and running statistic, in torchvision's order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for conv in _convolutions(224):
        shapes[f"{conv.name}.weight"] = (conv.outputs, conv.inputs, conv.kernel, conv.kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{conv.norm}.{part}"] = (conv.outputs,)
    shapes["fc.weight"] = (CLASSES, STAGES[-1].width * EXPANSION)
    shapes["fc.bias"] = (CLASSES,)
    return shapes


def num_parameters() -> int:
    """Trainable parameters: running statistics don't count."""
    shapes = parameter_shapes().items()
    return sum(math.prod(shape) for name, shape in shapes if ".running_" not in name)


def _convolutions(side: int) -> Iterator[_Convolution]:
    """Every convolution in torchvision's order, for images of this side."""
    side = _halved(side)
    yield _Convolution(name="conv1", norm="bn1", inputs=3, outputs=64, kernel=7, side=side)
    inputs, side = 64, _halved(side)  # the max-pool
    for stage in STAGES:
        for index in range(stage.blocks):
            halves = index == 0 and stage.stride == 2
            yield from _bottleneck(f"{stage.name}.{index}", inputs, stage.width, side, halves)
            inputs, side = stage.width * EXPANSION, _halved(side) if halves else side


def _bottleneck(
    prefix: str, inputs: int, width: int, side: int, halves: bool
) -> Iterator[_Convolution]:
    after, outputs = _halved(side) if halves else side, width * EXPANSION
    rows = [
        ("conv1", "bn1", inputs, width, 1, side),
        ("conv2", "bn2", width, width, 3, after),
        ("conv3", "bn3", width, outputs, 1, after),
        ("downsample.0", "downsample.1", inputs, outputs, 1, after),
    ]
    for name, norm, fan_in, fan_out, kernel, out_side in rows if inputs != outputs else rows[:-1]:
        yield _Convolution(
            name=f"{prefix}.{name}",
            norm=f"{prefix}.{norm}",
            inputs=fan_in,
            outputs=fan_out,
            kernel=kernel,
            side=out_side,
        )


def _halved(side: int) -> int:
    """The side after a stride of 2 with symmetric padding (kernel - 1) / 2."""
    return (side + 1) // 2


def flops(case: Case) -> int:
    """Operations of a step's convolutions and its matrix product, a multiply-add being two.

    Counted from the parameter table: outputs x inputs x kernel x kernel x side x side, padded taps
    included. At 224 pixels 4.089 G multiply-adds an image, as torchvision's own table says
    (`ResNet50_Weights`, `_ops`). Batch norm, ReLU and pooling (under 1 %) are left out.
    """
    macs = sum(
        conv.outputs * conv.inputs * conv.kernel**2 * conv.side**2
        for conv in _convolutions(case.side)
    )
    return 2 * case.batch * (macs + CLASSES * STAGES[-1].width * EXPANSION)


def winograd_share(case: Case) -> float:
    """What share of the FLOPs are 3x3 convolutions of stride 1: all but the halving blocks' one."""
    halving = {f"{stage.name}.0.conv2" for stage in STAGES if stage.stride == 2}
    macs = sum(
        conv.outputs * conv.inputs * conv.kernel**2 * conv.side**2
        for conv in _convolutions(case.side)
        if conv.kernel == 3 and conv.name not in halving
    )
    return 2 * case.batch * macs / flops(case)


def least_bytes(case: Case) -> int:
    """Bytes that must cross the memory border once in a step: parameters, images in, logits out.

    Activations are left out: perfect fusion and a large enough cache could keep them on the chip.
    """
    numbers = sum(math.prod(shape) for shape in parameter_shapes().values())
    held = 2 if case.precision == "bf16" else 4
    computed = 2 if case.precision.startswith("bf16") else 4
    return held * (numbers + case.batch * 3 * case.side**2) + computed * case.batch * CLASSES


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    fp32_ieee: each side's fp32 logits are 4e-7 to 1.6e-6 from an fp64 oracle on CPUs; wrong
    padding, stride, epsilon or layout give 1e-4 and more, TF32 6e-4 (emulated).

    bf16 and bf16_autocast: the sides differ by 9e-3 and 1.4e-2 on CPUs, which hides a wrong padding
    or epsilon: the fp32 case is the proof that it is the same network. tf32: some three times the
    emulated error; it has not been run on a GPU.
    """
    of_precision = {"fp32_ieee": 1e-5, "tf32": 2e-3, "bf16": 4e-2, "bf16_autocast": 4e-2}
    return {"logits": of_precision[case.precision]}
