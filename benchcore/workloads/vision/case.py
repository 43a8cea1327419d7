"""Shared by vision workloads: cases, the recipe of a training step, inputs, tolerances, sketches.

Canonical names are the keys of the `state_dict()` of torchvision's model. Canonical layouts are
torch's: convolutions (out, in / groups, height, width), images (batch, channel, height, width).
The counters `num_batches_tracked` are left out: nothing here reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchcore.program import REFERENCE, Precision, State, Steps
from benchcore.workloads.contract import Spec
from benchcore.workloads.optimizers import AdamW, advance_adamw, advance_sgd
from benchcore.workloads.settings import (
    DEFECTS,
    JAX_ATTENTION,
    JAX_OPTIONS,
    TORCH_ATTENTION,
    TORCH_IMAGE_OPTIONS,
    Options,
)

_TORCH_DEFECTS = ("frozen-weights", "loss-fetched")
_JAX_DEFECTS = ("image-from-host", "loss-fetched")
CONVOLUTIONAL = ("frozen-batch-norm", "same-padding")
"""Defects of JAX's side for networks with convolutions and batch norms."""


def take_defects(*of_jax: str, attends: bool = False) -> Mapping[str, Options]:
    """The `SETTINGS` of a vision workload's spec, with these defects of JAX's model;
    `benchcore.experiments.defect_study.switches` describes them. `attends`: the model has
    attention."""
    attention = (JAX_ATTENTION, TORCH_ATTENTION) if attends else ({}, {})
    return {
        "jax": {**JAX_OPTIONS, **attention[0], DEFECTS: (*of_jax, *_JAX_DEFECTS)},
        "torch": {**TORCH_IMAGE_OPTIONS, **attention[1], DEFECTS: _TORCH_DEFECTS},
    }


SETTINGS = take_defects(attends=True)
"""All that some vision workload accepts."""

CLASSES = 1000
TRACE_STEPS = 3
"""A wrong update shows from step 2 on; a wrong momentum or order of weight decay from step 3."""
PROOF_TRACE_STEPS = 10
SKETCH_SIZE = 4096
MOMENTUM = 0.9
ADAMW_BETAS = (0.9, 0.999)
ADAMW_EPSILON = 1e-8
LABEL_SMOOTHING = 0.1
WEIGHT_DECAY = 1e-4
"""From torchvision's recipe for ResNet-50; applied to every parameter, as in `torch.optim.SGD`."""
TINY_WEIGHT_DECAY = 0.2
"""So strong that three steps of a tiny case show where it is applied."""

UseCase = Literal["infer", "train"]
Optimizer = Literal["sgd", "adamw"]
_TINY_TOO = (("infer", "bf16"), ("infer", "bf16_autocast"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """`side` is the height and width of an image in pixels; inference has no weight decay."""

    use_case: UseCase
    batch: int
    precision: Precision
    side: int
    weight_decay: float = 0.0
    optimizer: Optimizer = "sgd"
    trace_steps: int = TRACE_STEPS
    """Steps of the loss trace in the evidence, all on the same images."""
    depth: int | None = None
    """Blocks of an encoder, if the network has one; None = as many as the model."""

    @property
    def learning_rate(self) -> float:
        """SGD: 0.1 for a batch of 256, proportional to the batch. AdamW: 1e-4 for any batch, which
        torchvision's recipe (0.003 for 4096) uses for a batch of 137. With a lower rate the
        update, a difference of two parameters, would have no digits."""
        return 0.1 * self.batch / 256 if self.optimizer == "sgd" else 1e-4


def make_cases(
    *, tiny_batch: Mapping[UseCase, int], infer: Iterable[int], train: Iterable[int]
) -> dict[str, Case]:
    """Cases of these batch sizes in every precision at 224 pixels, and tiny ones at 64.

    Names omit IEEE float32. There is no tiny case of tf32, which CPUs don't have, nor of training
    in bf16: each would cost the tests a compilation.
    """
    wanted: list[tuple[str, UseCase, int, int]] = [
        *((f"tiny_{use_case}", use_case, batch, 64) for use_case, batch in tiny_batch.items()),
        *((f"infer_b{batch}", "infer", batch, 224) for batch in infer),
        *((f"train_b{batch}", "train", batch, 224) for batch in train),
    ]
    return {
        name if precision == "fp32_ieee" else f"{name}_{precision}": Case(
            use_case=use_case,
            batch=batch,
            precision=precision,
            side=side,
            weight_decay=_weight_decay(use_case, side),
        )
        for precision in get_args(Precision)
        for name, use_case, batch, side in wanted
        if side > 64 or precision == "fp32_ieee" or (use_case, precision) in _TINY_TOO
    }


def make_proofs() -> dict[str, Case]:
    """Inference on photographs at 224 pixels; a training step and the loss trace at 64."""
    return {
        "infer": Case(use_case="infer", batch=2, precision="fp32_ieee", side=224),
        "train": Case(
            use_case="train",
            batch=4,
            precision="fp32_ieee",
            side=64,
            weight_decay=TINY_WEIGHT_DECAY,
            trace_steps=PROOF_TRACE_STEPS,
        ),
    }


def _weight_decay(use_case: str, side: int) -> float:
    if use_case == "infer":
        return 0.0
    return TINY_WEIGHT_DECAY if side == 64 else WEIGHT_DECAY


def make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`images` (batch, 3, side, side) float32, standard normal; in training `labels` int32."""
    shape = (case.batch, 3, case.side, case.side)
    images = {"images": rng.standard_normal(shape, dtype=np.float32)}
    if case.use_case == "infer":
        return images
    return images | {"labels": rng.integers(0, CLASSES, case.batch, dtype=np.int32)}


def is_statistic(name: str) -> bool:
    """Whether a canonical name is a running statistic of a batch norm."""
    return name.endswith((".running_mean", ".running_var"))


def num_buffers(case: Case) -> int:
    """Two: the second reveals a step whose outputs do not follow its images."""
    return 2


def num_proof_steps(case: Case) -> int:
    """One for each set of images; of a training the loss trace."""
    return num_buffers(case) if case.use_case == "infer" else case.trace_steps


def find_gradient(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The first step's gradient of the loss alone, without the weight decay. Momentum starts at
    zero, so after step one SGD's is the gradient with the decay, and AdamW's first moment the
    gradient's share of it."""
    after = steps.after_first
    moments = after["first_moment" if case.optimizer == "adamw" else "momentum"]
    in_order = {name: moments[name] for name in steps.before if name in moments}
    if case.optimizer == "adamw":
        return {name: array / (1 - ADAMW_BETAS[0]) for name, array in in_order.items()}
    return {
        name: array - case.weight_decay * steps.before[name].astype(array.dtype)
        for name, array in in_order.items()
    }


def summarise(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The quantities that `tolerances` names: logits (steps, batch, classes), or of a training the
    losses, sketches of gradient, update (step one) and travel (all steps), and the running
    statistics after step one: after all steps rounding at kinks has moved them."""
    if case.use_case == "infer":
        return {"logits": np.stack([each["logits"] for each in steps.outputs])}
    losses = np.array([each["loss"] for each in steps.outputs])
    evidence = {"loss": losses[:1], "loss_trace": losses}
    if case.precision in ("fp32_ieee", REFERENCE):
        first, last = steps.after_first["params"], steps.after_last["params"]
        sketches = sketch_together(
            (array, first[name] - steps.before[name], last[name] - steps.before[name])
            for name, array in find_gradient(case, steps).items()
        )
        evidence |= zip(("gradient", "update", "travel"), sketches, strict=True)
    for kind in ("running_mean", "running_var"):
        statistics = steps.after_first["statistics"]
        names = [name for name in steps.before if name.endswith(f".{kind}")]
        if names:
            evidence[kind] = np.concatenate([statistics[name] for name in names])
    return evidence


def list_parts(case: Case, steps: Steps) -> dict[str, np.ndarray]:
    """The sketch of each array of the first gradient and update."""
    if case.use_case == "infer":
        return {}
    gradient, after = find_gradient(case, steps), steps.after_first["params"]
    parts = {f"gradient/{name}": sketch([array]) for name, array in gradient.items()}
    return parts | {
        f"update/{name}": sketch([after[name] - steps.before[name]]) for name in gradient
    }


def advance(case: Case, before: State, after: State, fresh: State) -> State:
    """Where a step must lead."""
    if case.optimizer == "sgd":
        return advance_sgd(before, fresh, learning_rate=case.learning_rate, momentum=MOMENTUM)
    constants = AdamW(
        learning_rate=case.learning_rate,
        betas=ADAMW_BETAS,
        epsilon=ADAMW_EPSILON,
        weight_decay=case.weight_decay,
    )
    return advance_adamw(before, after, fresh, constants)


make_spec = functools.partial(
    Spec,
    advance=advance,
    num_buffers=num_buffers,
    num_proof_steps=num_proof_steps,
    summarise=summarise,
    list_parts=list_parts,
)
"""The spec of a vision model, whose evidence is read in the same way for all."""


def sketch(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """A count sketch: SKETCH_SIZE signed sums, with each value in exactly one of them.

    Charikar, Chen and Farach-Colton (2002). It is linear and preserves norms within about 1 %, so
    the relative distance of two sketches is the global relative L2 distance of the originals:
    32 kB instead of 100 MB.
    """
    return sketch_together((array,) for array in arrays)[0]


def sketch_together(rows: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The sketch of every column, as if sketched alone. Drawing places and signs is most of the
    time that a sketch takes."""
    rng = np.random.Generator(np.random.PCG64(0))
    sums: list[np.ndarray] = []
    for row in rows:
        size = row[0].size
        places = rng.integers(0, SKETCH_SIZE, size, dtype=np.uint16)
        signs = rng.integers(0, 2, size, dtype=np.int8) * 2 - 1
        weights = (signs * each.ravel().astype(np.float64) for each in row)
        parts = [np.bincount(places, weights=each, minlength=SKETCH_SIZE) for each in weights]
        sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
    return sums


def tolerances(
    case: Case,
    *,
    gradient: float,
    update: float | None = None,
    loss_trace: float | None = None,
    logits: float = 1e-5,
    normed: bool = True,
) -> dict[str, float]:
    """Largest allowed max|a-b| / max(|a|, |b|) between two contenders, for every quantity.

    fp32_ieee: both sides' `logits` differ from an fp64 reference by 4e-7 to 1.6e-6 on CPUs, but for
    a model that sets them. Wrong padding, stride, epsilon or layout give at least 1e-4, TF32 6e-4
    (emulated). The loss and the running statistics of one step are as precise: up to 3e-7 and
    2.2e-6 (means with 32 images per batch in compiled torch; biases before batch norms give 5e-4).
    Gradients are not. Rounding alone puts a ReLU's input on either side of zero, and one such unit
    late in the network moves the gradient by 1e-2. So each model sets `gradient`, from which follow
    `update` (step 1), `travel` and `loss_trace` (TRACE_STEPS steps), unless it sets them too.

    bf16 and bf16_autocast: about three times the differences measured on CPUs (logits 1.4e-2, loss
    2e-3, loss trace 1e-2, running mean 9e-3 and variance 2.3e-2), which hides a wrong padding or
    epsilon. Gradients differ by 0.6 and are not evidence: the fp32 case proves that both sides are
    the same network. tf32: logits about three times the emulated error, all else an eighth of
    bf16's; not run on a GPU.
    """
    coarse = {"loss": 1e-2, "loss_trace": 4e-2, "running_mean": 3e-2, "running_var": 7e-2}
    train = {
        "fp32_ieee": {
            "loss": 1e-5,
            "loss_trace": loss_trace or gradient,
            "gradient": gradient,
            "update": update or gradient,
            "travel": update or gradient,
            "running_mean": 1e-5,
            "running_var": 1e-5,
        },
        "tf32": {quantity: tolerance / 8 for quantity, tolerance in coarse.items()},
        "bf16": coarse,
        "bf16_autocast": coarse,
    }[case.precision]
    if case.use_case == "infer":
        of_logits = {"fp32_ieee": logits, "tf32": 2e-3, "bf16": 4e-2, "bf16_autocast": 4e-2}
        return {"logits": of_logits[case.precision]}
    return {
        quantity: tolerance
        for quantity, tolerance in train.items()
        if normed or not quantity.startswith("running_")
    }
