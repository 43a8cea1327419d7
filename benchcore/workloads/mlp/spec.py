"""A ReLU multi-layer perceptron with softmax cross-entropy: cases, arrays, counts and reference.

The canonical layout is torch's: `fcN.weight` is (out, in), `fcN.bias` is (out,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from benchcore.program import REFERENCE, Arrays, ByName, Precision, Steps
from benchcore.workloads.contract import Spec
from benchcore.workloads.optimizers import advance_sgd
from benchcore.workloads.proof_inputs.kinks import choose_spread, leave_in_chain
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import (
    JAX_OPTIONS,
    TORCH_MODEL,
    TORCH_OPTIONS,
    TORCH_TRAINING,
    Options,
)

SETTINGS: Mapping[str, Options] = {
    "jax": JAX_OPTIONS,
    "torch": {**TORCH_OPTIONS, **TORCH_TRAINING, **TORCH_MODEL},
}

LEARNING_RATE = 0.02
MOMENTUM = 0.9
INPUT_BUFFERS = 4
"""Batches that steps rotate over: a single one would stay in a cache from step to step."""
TRACE_STEPS = 10
"""Steps of the loss trace: a wrong update shows from step 2 on, a wrong momentum from step 3."""
KINK = 1e-5
"""Smallest allowed |input| of a ReLU. Inputs are of the order of 1."""


UseCase = Literal["infer", "train"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Layer widths from the input to the classes, and the use case."""

    use_case: UseCase
    batch: int
    precision: Precision
    widths: tuple[int, ...]

    @property
    def layers(self) -> tuple[tuple[str, int, int], ...]:
        """(name, inputs, outputs) of every layer, first to last."""
        sizes = enumerate(pairwise(self.widths))
        return tuple((f"fc{index}", inputs, outputs) for index, (inputs, outputs) in sizes)


_TINY = (24, 16, 16, 5)
_MNIST = (784, 512, 512, 10)


def _make_cases(precision: Precision) -> dict[str, Case]:
    """Names end with the precision, except for IEEE float32."""
    end = "" if precision == "fp32_ieee" else f"_{precision}"
    cases: dict[str, Case] = {}
    for use in get_args(UseCase):
        tiny = Case(use_case=use, batch=8, precision=precision, widths=_TINY)
        cases[f"tiny_{use}{end}"] = tiny
        for batch in (1, 8, 32, 128):
            cases[f"{use}_b{batch}{end}"] = replace(tiny, batch=batch, widths=_MNIST)
    return cases


CASES: dict[str, Case] = {
    name: case for precision in get_args(Precision) for name, case in _make_cases(precision).items()
}


PROOFS: dict[str, Case] = {
    "infer": Case(use_case="infer", batch=32, precision="fp32_ieee", widths=_MNIST),
    "train": Case(use_case="train", batch=32, precision="fp32_ieee", widths=_MNIST),
}
"""The cases of the equivalence proof: run in every precision and in float64."""


def make_arrays(case: Case, seed: int) -> Arrays:
    """He-normal weights, small non-zero biases (to detect a forgotten bias), and inputs.

    Inputs: `images` (batch, widths[0]) float32; when training `labels` (batch,) int32. Images near
    a ReLU's kink are drawn again. Rounding alone would put two correct contenders on different
    sides of it (for some 3 % of seeds at the base sizes), and one such unit moves the gradient by
    3e-3.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    params: dict[str, np.ndarray] = {}
    for name, inputs, outputs in case.layers:
        weight = rng.standard_normal((outputs, inputs), dtype=np.float32)
        params[f"{name}.weight"] = weight * np.float32(np.sqrt(2.0 / inputs))
        params[f"{name}.bias"] = rng.standard_normal(outputs, dtype=np.float32) * np.float32(0.1)
    images = rng.standard_normal((case.batch, case.widths[0]), dtype=np.float32)
    while (near := _near_a_kink(case, params, images)).any():
        images[near] = rng.standard_normal((near.sum(), case.widths[0]), dtype=np.float32)
    if case.use_case == "infer":
        return Arrays(params=params, inputs={"images": images})
    labels = rng.integers(0, case.widths[-1], case.batch, dtype=np.int32)
    return Arrays(params=params, inputs={"images": images, "labels": labels})


def leave_kinks(case: Case, params: ByName) -> ByName:
    """Far from the kinks of all ReLUs, also after some steps."""
    layers = [name for name, _, _ in case.layers]
    return leave_in_chain(params, layers, choose_spread(case.use_case))


def _near_a_kink(case: Case, params: Mapping[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Mask (batch,) of the images that bring the input of some ReLU nearer to zero than KINK."""
    exact = {name: array.astype(np.float64) for name, array in params.items()}
    hidden = _sums(case, exact, images.astype(np.float64))[:-1]
    return np.any([np.abs(value).min(axis=1) < KINK for value in hidden], axis=0)


def flops(case: Case) -> int:
    """Operations of a step's matrix products; one multiply-add counts as two. Counted by hand.

    Forward: one product per layer. Backward: one for the weights of every layer, and one for the
    input of every layer but the first. Biases, ReLU, softmax and optimizer (under 1 % at the base
    sizes' batch) are left out for both frameworks.
    """
    products = [2 * case.batch * inputs * outputs for _, inputs, outputs in case.layers]
    if case.use_case == "infer":
        return sum(products)
    return 3 * sum(products) - products[0]


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory, however well it is fused.

    Infer: parameters and images in, logits out. Train: parameters and momentum in and out, images
    and labels in, the loss out; activations and gradients could stay on the chip. A step can be
    faster where a cache holds the parameters from step to step.
    """
    held = 2 if case.precision == "bf16" else 4
    parameters = held * sum((inputs + 1) * outputs for _, inputs, outputs in case.layers)
    images = held * case.batch * case.widths[0]
    if case.use_case == "infer":
        computed = 2 if case.precision.startswith("bf16") else 4
        return parameters + images + computed * case.batch * case.widths[-1]
    return 4 * parameters + images + 4 * case.batch + 4


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    Measured on CPUs, JAX against torch and both against float64, the worst of 12 seeds and both
    sizes: logits 7e-7, loss trace 2e-7, gradient 6e-7. The update, a difference of two parameters,
    loses digits: 4e-6. Tolerances are 5 to 50 times larger, for other summation orders (GPUs, wider
    layers). TF32 erred by at least 6e-4 on four other networks, so it can't pass for fp32_ieee.
    They hold where ReLUs are far from their kinks: see `leave_kinks`.

    bf16 and bf16_autocast, worst of 8 seeds (3 at the base sizes): logits 8e-3, loss trace 3e-3,
    gradient and (under autocast) update 3e-2, because ReLUs near their kink fall on either side.
    Tolerances are 3 times that and prove less than those of fp32: the fp32 case of a workload
    proves that both sides are the same network. The update of pure bf16 is not evidence: a
    difference of two parameters has no digits left (0.25). tf32 has an eighth of bf16's roundoff
    and tolerance; it has not been run on a GPU.
    """
    fp32 = {"logits": 1e-5, "loss": 1e-5, "loss_trace": 1e-5, "gradient": 1e-5}
    fp32 |= {"update": 1e-3, "travel": 1e-3}
    autocast = {
        "logits": 2.5e-2,
        "loss_trace": 1e-2,
        "gradient": 1e-1,
        "update": 1e-1,
        "travel": 1e-1,
    }
    of_precision = {
        REFERENCE: dict.fromkeys(fp32, 1e-9),
        "fp32_ieee": fp32,
        "tf32": {name: tolerance / 8 for name, tolerance in autocast.items()},
        "bf16": {name: autocast[name] for name in ("logits", "loss_trace", "gradient")},
        "bf16_autocast": autocast,
    }[case.precision]
    infer = case.use_case == "infer"
    return {name: of_precision[name] for name in of_precision if (name == "logits") == infer}


def summarise(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """`logits` (steps, batch, classes) of every set of inputs in turn; or of a training the losses,
    the first step's gradient (momentum starts at zero, so it then is the gradient) and update, and
    how far all steps led."""
    if case.use_case == "infer":
        return {"logits": np.stack([each["logits"] for each in steps.outputs])}
    first, last = steps.after_first, steps.after_last
    found = {
        "gradient": flatten(first["momentum"], steps.before),
        "update": flatten(_subtract(first["params"], steps.before), steps.before),
        "travel": flatten(_subtract(last["params"], steps.before), steps.before),
        "loss_trace": np.array([each["loss"] for each in steps.outputs]),
    }
    found["loss"] = found["loss_trace"][:1]
    return {name: found[name] for name in tolerances(case)}


def list_parts(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The first step's gradient by array."""
    if case.use_case == "infer":
        return {}
    return {f"gradient/{name}": each for name, each in steps.after_first["momentum"].items()}


def _subtract(
    after: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: array - before[name] for name, array in after.items()}


def reference(case: Case, arrays: Arrays) -> dict[str, np.ndarray]:
    """The evidence in float64 numpy, independent of both frameworks: the reference of the tests."""
    params = {name: array.astype(np.float64) for name, array in arrays.params.items()}
    sets = roll(arrays.inputs, INPUT_BUFFERS)
    images = [each["images"].astype(np.float64) for each in sets]
    if case.use_case == "infer":
        return {"logits": np.stack([_sums(case, params, each)[-1] for each in images])}
    return _reference_training(case, params, images, arrays.inputs["labels"])


def _sums(case: Case, params: Mapping[str, np.ndarray], images: np.ndarray) -> list[np.ndarray]:
    """Output (batch, outputs) of every layer before its ReLU; the last one is the logits."""
    sums: list[np.ndarray] = []
    value = images
    for name, _, _ in case.layers:
        sums.append(value @ params[f"{name}.weight"].T + params[f"{name}.bias"])
        value = np.maximum(sums[-1], 0.0)
    return sums


def _loss_and_gradient(
    case: Case, params: Mapping[str, np.ndarray], images: np.ndarray, labels: np.ndarray
) -> tuple[float, dict[str, np.ndarray]]:
    *hidden, logits = _sums(case, params, images)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(case.batch)
    loss = -log_probability[rows, labels].mean()
    slope = np.exp(log_probability)
    slope[rows, labels] -= 1.0
    slope /= case.batch
    gradient: dict[str, np.ndarray] = {}
    values = [images, *(np.maximum(value, 0.0) for value in hidden)]
    for (name, _, _), value in zip(reversed(case.layers), reversed(values), strict=True):
        gradient[f"{name}.weight"] = slope.T @ value
        gradient[f"{name}.bias"] = slope.sum(axis=0)
        slope = (slope @ params[f"{name}.weight"]) * (value > 0.0)
    return float(loss), gradient


def _reference_training(
    case: Case,
    params: dict[str, np.ndarray],
    images: Sequence[np.ndarray],
    labels: np.ndarray,
) -> dict[str, np.ndarray]:
    momentum = {name: np.zeros_like(array) for name, array in params.items()}
    losses: list[float] = []
    evidence: dict[str, np.ndarray] = {}
    before = params
    for step in range(TRACE_STEPS):
        loss, gradient = _loss_and_gradient(case, params, images[step % len(images)], labels)
        losses.append(loss)
        momentum = {name: MOMENTUM * momentum[name] + gradient[name] for name in params}
        update = {name: -LEARNING_RATE * momentum[name] for name in params}
        params = {name: params[name] + update[name] for name in params}
        if not evidence:
            evidence = {"gradient": flatten(gradient, params), "update": flatten(update, params)}
    travel = flatten(_subtract(params, before), before)
    trace = np.array(losses)
    found = {**evidence, "travel": travel, "loss": trace[:1], "loss_trace": trace}
    return {name: found[name] for name in tolerances(case)}


def flatten(parts: Mapping[str, np.ndarray], order: Mapping[str, object]) -> np.ndarray:
    """The values of all parameters in one vector, in canonical order and layout."""
    return np.concatenate([parts[name].ravel() for name in order])


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    num_buffers=lambda case: INPUT_BUFFERS,
    num_proof_steps=lambda case: INPUT_BUFFERS if case.use_case == "infer" else TRACE_STEPS,
    summarise=summarise,
    advance=lambda case, before, after, fresh: advance_sgd(
        before, fresh, learning_rate=LEARNING_RATE, momentum=MOMENTUM
    ),
    list_parts=list_parts,
    leave_kinks=leave_kinks,
    reference=reference,
    settings=SETTINGS,
    proofs=PROOFS,
)
