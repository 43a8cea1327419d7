"""Many small networks at once: N of one shape, each with weights and inputs of its own.

A network is one layer or four: linear, or convolutions of 3x3 with padding; SiLU between layers.
SiLU is smooth: rounding moves no unit across a kink, so that tolerances can be narrow. How the N
are put together is a setting of the arm, `batching`: one after the other, `vmap` over their stacked
weights, or written as one batched product or grouped convolution. Both sides run it compiled or
eager (`compile` = `none`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Literal, get_args

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.ensemble.reference import compute_reference
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import BATCHING, JAX_EAGER, JAX_OPTIONS, TORCH_OPTIONS, Options

SETTINGS: Mapping[str, Options] = {
    "jax": {**JAX_EAGER, "xla": JAX_OPTIONS["xla"], **BATCHING},
    "torch": {**TORCH_OPTIONS, **BATCHING},
}
NUM_BUFFERS = 2
"""The second input reveals a step that returns what it computed before."""
TAPS = 9
UseCase = Literal["infer", "gradient"]
Network = Literal["mlp", "convnet", "linear", "convolution"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`models` networks; each gets `batch` images of its own, (channels, side, side).

    `widths`: features from the input to the output; of convolutions, the channels.
    """

    use_case: UseCase
    batch: int
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    network: Network
    models: int
    channels: int
    side: int
    widths: tuple[int, ...]

    @property
    def convolves(self) -> bool:
        """Whether the layers are convolutions."""
        return self.network in ("convnet", "convolution")

    @property
    def layers(self) -> tuple[tuple[str, int, int], ...]:
        """(name, inputs, outputs) of every layer, first to last."""
        sizes = enumerate(pairwise(self.widths))
        return tuple((f"layer{index}", inputs, outputs) for index, (inputs, outputs) in sizes)


_TINY: Mapping[Network, tuple[int, ...]] = {
    "mlp": (32, 12, 10, 8, 6),
    "convnet": (2, 3, 4, 5, 6),
    "linear": (32, 12),
    "convolution": (2, 3),
}
_BASE: Mapping[Network, tuple[int, ...]] = {
    "mlp": (3072, 256, 256, 256, 10),
    "convnet": (3, 32, 64, 128, 256),
    "linear": (3072, 256),
    "convolution": (3, 32),
}
_SIZES = tuple(product((1, 2, 4, 8, 16, 64), (1, 8, 32)))
"""(models, batch) of the cases that are not tiny: enough to see where batching begins to pay."""


def _list_cases() -> Iterator[tuple[str, Case]]:
    for network, use in product(get_args(Network), get_args(UseCase)):
        tiny = Case(
            use_case=use, batch=2, network=network, models=3, channels=2, side=4,
            widths=_TINY[network],
        )  # fmt: skip
        if network == "mlp":
            yield f"tiny_{use}", tiny
        else:
            yield f"tiny_{use}_{network}", tiny
        base = replace(tiny, channels=3, side=32, widths=_BASE[network])
        for models, batch in _SIZES:
            name = f"{network}_{use}_n{models}_b{batch}"
            yield name, replace(base, models=models, batch=batch)


CASES: dict[str, Case] = dict(_list_cases())


def make_arrays(case: Case, seed: int) -> Arrays:
    """Parameters, float32: `layerK.weight` (models, out, in), of convolutions (models, out, in, 3,
    3), He-normal; `layerK.bias` (models, out). Input: `images` (models, batch, channels, side,
    side), standard normal."""
    rng = np.random.Generator(np.random.PCG64(seed))
    params: dict[str, np.ndarray] = {}
    taps = (3, 3) if case.convolves else ()
    for name, inputs, outputs in case.layers:
        weight = rng.standard_normal((case.models, outputs, inputs, *taps), dtype=np.float32)
        fan_in = inputs * (TAPS if case.convolves else 1)
        params[f"{name}.weight"] = weight * np.float32(np.sqrt(2.0 / fan_in))
        bias = rng.standard_normal((case.models, outputs), dtype=np.float32)
        params[f"{name}.bias"] = bias * np.float32(0.1)
    shape = (case.models, case.batch, case.channels, case.side, case.side)
    return Arrays(params=params, inputs={"images": rng.standard_normal(shape, dtype=np.float32)})


def flops(case: Case) -> int:
    """Operations of a step's products and convolutions; taps in the padding count. A gradient has
    two more products per layer, but none for the images'."""
    pixels = case.side**2 * TAPS if case.convolves else 1
    each = [2 * case.models * case.batch * pixels * i * o for _, i, o in case.layers]
    return sum(each) if case.use_case == "infer" else 3 * sum(each) - each[0]


def least_bytes(case: Case) -> int:
    """Bytes a step must move: weights and images in, outputs or gradients out."""
    taps, pixels = (TAPS, case.side**2) if case.convolves else (1, 1)
    params = case.models * sum((i * taps + 1) * o for _, i, o in case.layers)
    images = case.models * case.batch * case.channels * case.side**2
    outputs = case.models * case.batch * case.widths[-1] * pixels
    return 4 * (params + images + (outputs if case.use_case == "infer" else params))


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(|a|, |b|) between two contenders.

    Tiny and base cases differ from float64 by at most 1e-6, on both sides and in every batching.
    """
    if case.use_case == "infer":
        return {"outputs": 1e-5}
    return {"loss": 1e-5, "gradient": 1e-5}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The evidence of both sets of inputs, in float64: `outputs` (models, batch, ...), or `loss`
    (models,), each the mean of its outputs' squares, and `gradient`, all weights' in one array."""
    params = {name: array.astype(np.float64) for name, array in arrays.params.items()}
    names = [name for name, _, _ in case.layers]
    found = [
        compute_reference(names, params, each["images"].astype(np.float64))
        for each in roll(arrays.inputs, NUM_BUFFERS)
    ]
    return {name: np.stack([each[name] for each in found]) for name in tolerances(case)}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    num_buffers=lambda case: NUM_BUFFERS,
    reference=reference,
    settings=SETTINGS,
)
