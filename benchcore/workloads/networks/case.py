"""Shared by networks that each side writes itself: cases, arrays, counts, evidence, tolerances.

Canonical names are the keys of the torch module's `state_dict()`, canonical layouts are torch's.
The last input is `labels`; an example has one row of every input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchcore.program import REFERENCE, Arrays, ByName, Precision, Steps, UnsupportedError
from benchcore.workloads.contract import Spec
from benchcore.workloads.optimizers import advance_sgd
from benchcore.workloads.settings import Options
from benchcore.workloads.vision.case import sketch, sketch_together

INPUT_BUFFERS = 2
TRACE_STEPS = 3
"""A wrong update shows from step 2 on; a wrong momentum from step 3."""
PROOF_TRACE_STEPS = 10
LEARNING_RATE = 0.02
MOMENTUM = 0.9
BATCH = "batch"
"""JAX's name of the axis that inputs are spread over on several devices."""
NORM_FLOOR = 1e-12
"""Added to the norm that a gradient is divided by: a sample may have none."""

UseCase = Literal["infer", "train", "per_sample_grad"]
Size = Literal["tiny", "base", "large"]
Reduction = Literal["clipped_sum", "norms"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`size` names the network's widths. `reduction` is what a step of `per_sample_grad` returns
    besides the norms: the sum of the clipped gradients (DP-SGD), or nothing."""

    use_case: UseCase
    batch: int
    precision: Precision
    size: Size
    reduction: Reduction = "clipped_sum"
    clip: float = 1.0
    """Largest norm of a sample's gradient in the clipped sum: set so that the seeded weights give
    some samples a larger one, and some a smaller one."""
    trace_steps: int = TRACE_STEPS
    devices: int = 1
    """Which share the work as the setting `strategy` chooses: the batch, evenly, by default."""


def make_cases(
    *,
    infer: Iterable[int],
    train: Iterable[int],
    per_sample: Iterable[int],
    clip: float,
) -> dict[str, Case]:
    """Cases by name: `train_b64` is of the base size, `large_train_b64` of the large one.

    In float32 and, except for the tiny ones, in TF32, which CPUs don't have.
    """
    wanted: list[tuple[str, UseCase, int, Reduction]] = [
        *((f"infer_b{batch}", "infer", batch, "clipped_sum") for batch in infer),
        *((f"train_b{batch}", "train", batch, "clipped_sum") for batch in train),
        *(
            (f"per_sample_grad{end}_b{batch}", "per_sample_grad", batch, reduction)
            for batch in per_sample
            for end, reduction in _REDUCTIONS
        ),
    ]
    sized: list[tuple[str, Size]] = [("", "base"), ("large_", "large")]
    precisions: list[tuple[str, Precision]] = [("", "fp32_ieee"), ("_tf32", "tf32")]
    cases = {
        f"{start}{name}{end}": Case(
            use_case=use_case,
            batch=batch,
            precision=precision,
            size=size,
            reduction=reduction,
            clip=clip,
        )
        for start, size in sized
        for name, use_case, batch, reduction in wanted
        for end, precision in precisions
    }
    spread = {
        f"{name}_x{devices}": dataclasses.replace(case, devices=devices)
        for name, case in cases.items()
        if case.use_case != "infer" and case.size == "base" and case.batch >= 32
        for devices in (2, 4)
    }
    return _make_tiny(clip) | cases | spread


_REDUCTIONS: tuple[tuple[str, Reduction], ...] = (("", "clipped_sum"), ("_norms", "norms"))


def _make_tiny(clip: float) -> dict[str, Case]:
    named: list[tuple[str, UseCase, Reduction]] = [
        ("infer", "infer", "clipped_sum"),
        ("train", "train", "clipped_sum"),
        *((f"per_sample_grad{end}", "per_sample_grad", each) for end, each in _REDUCTIONS),
    ]
    tiny = {
        f"tiny_{name}": Case(
            use_case=use_case,
            batch=8,
            precision="fp32_ieee",
            size="tiny",
            reduction=reduction,
            clip=clip,
        )
        for name, use_case, reduction in named
    }
    spread = [("train", 2), ("per_sample_grad", 2), ("train", 4)]
    return tiny | {
        f"tiny_{name}_x{devices}": dataclasses.replace(tiny[f"tiny_{name}"], devices=devices)
        for name, devices in spread
    }


def make_proofs(clip: float) -> dict[str, Case]:
    """The proven cases: of the base size, in small batches."""
    use_cases: tuple[UseCase, ...] = ("infer", "train", "per_sample_grad")
    return {
        use_case: Case(
            use_case=use_case,
            batch=4,
            precision="fp32_ieee",
            size="base",
            clip=clip,
            trace_steps=PROOF_TRACE_STEPS,
        )
        for use_case in use_cases
    }


Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Product:
    """A matrix product or convolution of the forward pass: its multiply-adds for one example, and
    how many of its operands have a gradient."""

    macs: int
    gradients: int = 2


MakeInputs = Callable[[Case, np.random.Generator], dict[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Network:
    """What a workload's spec defines of its network."""

    shapes: Callable[[Case], Shapes]
    """Shapes of every parameter and running statistic, in the order of the torch module."""
    products: Callable[[Case], Iterable[Product]]
    """Products of the forward pass of one example."""
    make_inputs: MakeInputs
    """The inputs, with `labels` last."""
    normed: bool = False
    """Whether training changes running statistics."""
    gradient_tolerance: float
    """Tolerance of quantities that come from gradients."""
    leave_kinks: Callable[[Case, ByName], ByName] | None = None
    """The parameters far from the kinks of ReLUs, if it has some."""

    def make_spec(
        self, cases: Mapping[str, Case], settings: Mapping[str, Options], **others: Any
    ) -> Spec:
        """The spec of the workload."""
        return Spec(
            cases=cases,
            make_arrays=self.make_arrays,
            flops=self.flops,
            least_bytes=self.least_bytes,
            tolerances=lambda case: tolerances(case, self.gradient_tolerance, normed=self.normed),
            num_buffers=lambda case: INPUT_BUFFERS,
            num_proof_steps=num_proof_steps,
            summarise=summarise,
            advance=lambda case, before, after, fresh: advance_sgd(
                before, fresh, learning_rate=LEARNING_RATE, momentum=MOMENTUM
            ),
            list_parts=list_parts,
            leave_kinks=self.leave_kinks,
            settings=settings,
            proofs=make_proofs(next(iter(cases.values())).clip),
            **others,
        )

    def make_arrays(self, case: Case, seed: int) -> Arrays:
        """He-normal weights, biases and scales that a side can't forget unnoticed, and inputs."""
        rng = np.random.Generator(np.random.PCG64(seed))
        params = {name: _draw(name, shape, rng) for name, shape in self.shapes(case).items()}
        inputs = self.make_inputs(case, rng)
        if case.use_case == "infer":
            del inputs["labels"]
        return Arrays(params=params, inputs=inputs)

    def flops(self, case: Case) -> int:
        """Operations of a step's products; one multiply-add counts as two.

        Per-sample gradients need the same products as their sum: each sample's share is summed
        later, or not at all. Their clipped sum is a product of the factors and the gradients.
        Everything else is left out for both frameworks.
        """
        backward = case.use_case != "infer"
        each = sum(p.macs * (1 + (p.gradients if backward else 0)) for p in self.products(case))
        if case.use_case == "per_sample_grad" and case.reduction == "clipped_sum":
            each += sum(math.prod(shape) for shape in self.shapes(case).values())
        return 2 * case.batch * each

    def least_bytes(self, case: Case) -> int:
        """Bytes a step must move: parameters and inputs in, results out; training also moves the
        momentum, and both out. Activations and gradients could stay on the chip."""
        shapes = self.shapes(case)
        numbers = sum(math.prod(shape) for shape in shapes.values())
        rng = np.random.Generator(np.random.PCG64(0))
        inputs = self.make_inputs(case, rng)
        given = sum(array.nbytes for array in inputs.values())
        out = {"infer": 0, "train": 3 * numbers, "per_sample_grad": case.batch}[case.use_case]
        if case.use_case == "per_sample_grad" and case.reduction == "clipped_sum":
            out += numbers
        return 4 * (numbers + out) + given


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    part = name.rpartition(".")[2]
    if part == "running_var":
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if part == "weight" and len(shape) == 1:  # the scale of a norm
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    normal = rng.standard_normal(shape, dtype=np.float32)
    if len(shape) == 1 or "embedding" in name:
        return normal * np.float32(0.1)
    return normal * np.float32(math.sqrt((2.0 if len(shape) == 4 else 1.0) / math.prod(shape[1:])))


def check_strategy(case: Case, strategy: str) -> None:
    """Raises UnsupportedError where there is nothing to share out."""
    if strategy != "data" and (case.devices == 1 or case.use_case != "train"):
        raise UnsupportedError(
            f"the strategy {strategy!r} needs training on several devices; choose a case such as "
            "train_b32_x2"
        )


def num_proof_steps(case: Case) -> int:
    """One for each set of inputs; of a training the loss trace."""
    return case.trace_steps if case.use_case == "train" else INPUT_BUFFERS


def summarise(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The quantities that `tolerances` names. `logits`, `norms` and the sketch of `clipped_sum` are
    of every set of inputs in turn. Of a training there are the losses, sketches of the first step's
    gradient and update and of how far all steps led, and the first step's running statistics."""
    if case.use_case != "train":
        return {
            name: np.stack([_reduce(name, each[name]) for each in steps.outputs])
            for name in steps.outputs[0]
        }
    first, last = steps.after_first["params"], steps.after_last["params"]
    sketches = sketch_together(
        (array, first[name] - steps.before[name], last[name] - steps.before[name])
        for name, array in _find_gradient(steps).items()
    )
    statistics = steps.after_first["statistics"]
    losses = np.array([each["loss"] for each in steps.outputs])
    found = {"loss": losses[:1], "loss_trace": losses}
    found |= zip(("gradient", "update", "travel"), sketches, strict=True)
    if statistics:
        in_order = [statistics[name] for name in steps.before if name in statistics]
        found["statistics"] = np.concatenate(in_order)
    return found


def _reduce(name: str, array: np.ndarray) -> np.ndarray:
    return sketch([array]) if name == "clipped_sum" else array


def _find_gradient(steps: Steps) -> dict[str, np.ndarray]:
    """Momentum starts at zero, so that after step one it is the gradient."""
    momentum = steps.after_first["momentum"]
    return {name: momentum[name] for name in steps.before if name in momentum}


def list_parts(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The first step's gradient by array."""
    if case.use_case != "train":
        return {}
    return {f"gradient/{name}": each for name, each in _find_gradient(steps).items()}


def tolerances(case: Case, gradient: float, *, normed: bool) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    TF32: a hundred times as much, and at most 5e-2. It has not been run on a GPU.
    """
    names = {
        "infer": ("logits",),
        "train": ("loss", "loss_trace", "gradient", "update", "travel"),
        "per_sample_grad": ("norms", "clipped_sum")
        if case.reduction == "clipped_sum"
        else ("norms",),
    }[case.use_case]
    found = {name: 1e-5 if name in ("logits", "loss") else gradient for name in names}
    for name in ("update", "travel"):
        if name in found:  # a difference of two parameters has lost a digit or two
            found[name] = min(10 * gradient, 5e-2)
    if normed and case.use_case == "train" and case.devices == 1:
        found["statistics"] = 1e-5
    if case.precision == "fp32_ieee":
        return found
    if case.precision == REFERENCE:
        return dict.fromkeys(found, 1e-9)
    return {
        name: min(100 * each, 1e-2 if name in ("logits", "loss") else 5e-2)
        for name, each in found.items()
    }
