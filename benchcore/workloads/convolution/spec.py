"""A single convolution of a vision model: forward, or the gradient of its weight. A slow kernel
that a whole model would hide shows here (pytorch#157334, openxla/xla#34273).

Each side uses the layout of its models here: NHWC and HWIO in JAX, NCHW and OIHW in torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.program import Arrays, Precision
from benchcore.workloads.contract import Spec
from benchcore.workloads.rotation import roll

NUM_BUFFERS = 2
"""The second input reveals a step that returns what it computed before."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`kernel` x `kernel`, stride 1, output as large as input; `gradient`: of the weight alone."""

    use_case: Literal["op"] = "op"
    batch: int
    precision: Precision = "fp32_ieee"
    side: int
    inputs: int
    outputs: int
    kernel: int
    groups: int
    gradient: bool


def _cases(
    name: str, batch: int, side: int, channels: tuple[int, int], kernel: int
) -> dict[str, Case]:
    """Forward and gradient. A depthwise case has as many groups as channels."""
    forward = Case(
        batch=batch,
        side=side,
        inputs=channels[0],
        outputs=channels[1],
        kernel=kernel,
        groups=channels[0] if "depthwise" in name else 1,
        gradient=False,
    )
    return {name: forward, f"{name}_gradient": dataclasses.replace(forward, gradient=True)}


CASES: dict[str, Case] = {
    **_cases("tiny_op", 2, 5, (4, 6), 3),
    **_cases("tiny_op_depthwise", 2, 6, (4, 4), 5),
    # ResNet-50's third stage; MobileNetV3-Small's and EfficientNet-B0's middle blocks.
    **_cases("dense_3x3", 8, 14, (256, 256), 3),
    **_cases("pointwise_1x1", 8, 14, (1024, 256), 1),
    **_cases("depthwise_3x3", 8, 28, (96, 96), 3),
    **_cases("depthwise_5x5", 8, 14, (672, 672), 5),
}


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs, float32, standard normal: `images` (batch, inputs, side, side), `weight` (outputs,
    inputs / groups, kernel, kernel), and for a gradient `cotangent` (batch, outputs, side, side).
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    images = (case.batch, case.inputs, case.side, case.side)
    shapes = {
        "images": images,
        "weight": (case.outputs, case.inputs // case.groups, case.kernel, case.kernel),
    }
    if case.gradient:
        shapes["cotangent"] = (case.batch, case.outputs, case.side, case.side)
    return Arrays(
        params={},
        inputs={
            name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()
        },
    )


def flops(case: Case) -> int:
    """One multiply-add counts as two. Taps in the padding count, as is usual in tables of FLOPs."""
    outputs = case.batch * case.outputs * case.side**2
    return 2 * outputs * case.inputs // case.groups * case.kernel**2


def winograd_share(case: Case) -> float:
    """1 for a dense 3x3 forward pass, else 0: a gradient's filter is as large as the image."""
    return 1.0 if case.kernel == 3 and case.groups == 1 and not case.gradient else 0.0


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: both images and the weight."""
    weight = case.outputs * case.inputs // case.groups * case.kernel**2
    images = case.batch * (case.inputs + case.outputs) * case.side**2
    return 4 * (weight + images)


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    Sums of at most 2304 products (forward) and 6272 (gradient) in float32 differ from float64 by
    1e-7 to 2e-6, with transforms such as Winograd's by 1e-5.
    """
    return {"gradient" if case.gradient else "output": 2e-5}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The evidence of both sets of inputs in turn, in float64."""
    found = [_convolve(case, each) for each in roll(arrays.inputs, NUM_BUFFERS)]
    return {name: np.stack([each[name] for each in found]) for name in found[0]}


def _convolve(case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The convolution as a sum over the kernel's taps."""
    given = {name: array.astype(np.float64) for name, array in inputs.items()}
    edge, side, batch = case.kernel // 2, case.side, case.batch
    padded = np.pad(given["images"], ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    grouped = padded.reshape(batch, case.groups, -1, *padded.shape[2:])
    weight = given["weight"].reshape(case.groups, -1, *given["weight"].shape[1:])
    output = np.zeros((batch, case.groups, case.outputs // case.groups, side, side))
    gradient = np.zeros_like(weight)
    cotangent = given["cotangent"].reshape(output.shape) if case.gradient else output
    for high in range(case.kernel):
        for wide in range(case.kernel):
            seen = grouped[..., high : high + side, wide : wide + side]
            output += np.einsum("bgihw,goi->bgohw", seen, weight[..., high, wide])
            gradient[..., high, wide] = np.einsum("bgihw,bgohw->goi", seen, cotangent)
    if case.gradient:
        return {"gradient": gradient.reshape(given["weight"].shape)}
    return {"output": output.reshape(batch, case.outputs, side, side)}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    num_buffers=lambda case: NUM_BUFFERS,
    reference=reference,
    winograd_share=winograd_share,
)
