"""ViT-B/16, as torchvision defines it: cases, table of its arrays, counts, tolerances.

Canonical names are the keys of `torchvision.models.vit_b_16().state_dict()`, layouts are torch's:
matrices (out, in), the patches' convolution (out, in, height, width), tokens (1, token, feature).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.proof_inputs.large_values import enlarge_far, shrink_first
from benchcore.workloads.vision import case as vision
from benchcore.workloads.vision.case import CLASSES, Case, make_cases, make_inputs
from benchcore.workloads.vision.pixels import training_arrays, trains_on

SETTINGS = vision.take_defects("tanh-gelu", attends=True)
PATCH = 16
BLOCKS = 12
HEADS = 12
FEATURES = 768
HIDDEN = 3072
"""Width of a block's perceptron."""
EPSILON = 1e-6
"""Epsilon of every layer norm; torch's default is 1e-5."""
WEIGHT_DECAY = 0.3
"""From torchvision's recipe; applied to every parameter, as in `torch.optim.AdamW`."""
TINY_WEIGHT_DECAY = 50.0
"""So strong that one step shows where it is applied: a parameter is about 0.04, an update 1e-4."""
TINY_BLOCKS = 2
FAR = {"encoder.pos_embedding": 8e3, "encoder_layer_0.mlp.3.bias": 2e4}
"""Some thousand deviations of what a block gets from those before it, where biases are large."""


def _train_as_torchvision(name: str, case: Case) -> Case:
    """AdamW where the other models use SGD, and few blocks in tiny cases."""
    depth = TINY_BLOCKS if name.startswith("tiny") else None
    if case.use_case == "infer":
        return replace(case, depth=depth)
    decay = WEIGHT_DECAY if case.side == 224 else TINY_WEIGHT_DECAY
    return replace(case, depth=depth, optimizer="adamw", weight_decay=decay)


CASES: dict[str, Case] = {
    name: _train_as_torchvision(name, case)
    for name, case in make_cases(
        tiny_batch={"infer": 2, "train": 2}, infer=(1, 8, 32, 128), train=(32,)
    ).items()
}
PROOFS: dict[str, Case] = {
    use_case: _train_as_torchvision("proof", case)
    for use_case, case in vision.make_proofs().items()
}
"""The cases of the equivalence proof, with all blocks: in every precision and in float64."""
PROOFS_FROM_CHECKPOINT = {**PROOFS, "train": replace(PROOFS["train"], batch=2, side=224)}
"""A checkpoint's position embedding is for 224 pixels."""


def num_blocks(case: Case) -> int:
    """Number of the encoder's blocks."""
    return BLOCKS if case.depth is None else case.depth


def num_tokens(case: Case) -> int:
    """Patches plus the class token: 197 at 224 pixels."""
    return (case.side // PATCH) ** 2 + 1


def parameter_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in torchvision's order."""
    return {
        "class_token": (1, 1, FEATURES),
        "conv_proj.weight": (FEATURES, 3, PATCH, PATCH),
        "conv_proj.bias": (FEATURES,),
        "encoder.pos_embedding": (1, num_tokens(case), FEATURES),
        **{
            name: shape for index in range(num_blocks(case)) for name, shape in _block_shapes(index)
        },
        "encoder.ln.weight": (FEATURES,),
        "encoder.ln.bias": (FEATURES,),
        "heads.head.weight": (CLASSES, FEATURES),
        "heads.head.bias": (CLASSES,),
    }


state_dict_shapes = parameter_shapes
"""Shapes in a state dict, as a checkpoint has it."""


def _block_shapes(index: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    block = f"encoder.layers.encoder_layer_{index}"
    yield from ((f"{block}.ln_1.{part}", (FEATURES,)) for part in ("weight", "bias"))
    yield f"{block}.self_attention.in_proj_weight", (3 * FEATURES, FEATURES)
    yield f"{block}.self_attention.in_proj_bias", (3 * FEATURES,)
    yield f"{block}.self_attention.out_proj.weight", (FEATURES, FEATURES)
    yield f"{block}.self_attention.out_proj.bias", (FEATURES,)
    yield from ((f"{block}.ln_2.{part}", (FEATURES,)) for part in ("weight", "bias"))
    for name, inputs, outputs in (("mlp.0", FEATURES, HIDDEN), ("mlp.3", HIDDEN, FEATURES)):
        yield f"{block}.{name}.weight", (outputs, inputs)
        yield f"{block}.{name}.bias", (outputs,)


def num_parameters(case: Case) -> int:
    """All of them trainable: 86,567,656 at 224 pixels."""
    return sum(math.prod(shape) for shape in parameter_shapes(case).values())


def make_arrays(case: Case, seed: int) -> Arrays:
    """Seeded parameters and inputs. Queries and keys are twice as large as the rest, which makes
    the attention uneven; the input of the first norm is small, so that its epsilon matters."""
    rng = np.random.Generator(np.random.PCG64(seed))
    params = {name: _initial(rng, name, shape) for name, shape in parameter_shapes(case).items()}
    return Arrays(params=params, inputs=make_inputs(case, rng))


def _initial(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if ".ln" in name and name.endswith("weight"):
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    array = rng.standard_normal(shape, dtype=np.float32)
    array *= 0.2 if len(shape) in (1, 3) else 1 / math.sqrt(math.prod(shape[1:]))
    if name.startswith(("class_token", "conv_proj", "encoder.pos_embedding")):
        array *= 0.1
    if name.endswith("in_proj_weight"):
        array[: 2 * FEATURES] *= 2.0
    return array


def flops(case: Case) -> int:
    """Operations of a step's matrix products; one multiply-add counts as two.

    17.564 G multiply-adds per image forward, as in torchvision's table (`ViT_B_16_Weights`,
    `_ops`). 0.7 G are the attention's own two products, which some counters leave out. Backward:
    one product per factor, but none for the images. Norms, softmax, GELU and the optimizer (under
    1 to 2 %) are left out.
    """
    tokens = num_tokens(case)
    patches = (tokens - 1) * FEATURES * 3 * PATCH**2
    matrices = tokens * FEATURES * (4 * FEATURES + 2 * HIDDEN)
    attention = 2 * tokens**2 * FEATURES
    forward = patches + num_blocks(case) * (matrices + attention) + FEATURES * CLASSES
    macs = forward if case.use_case == "infer" else 3 * forward - patches
    return 2 * case.batch * macs


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory.

    Infer: parameters and images in, logits out. Train: parameters and both moments in and out,
    images and labels in, the loss out; activations could stay on the chip.
    """
    held = 2 if case.precision == "bf16" else 4
    computed = 2 if case.precision.startswith("bf16") else 4
    images = case.batch * 3 * case.side**2
    if case.use_case == "train":
        return held * (6 * num_parameters(case) + images) + 4 * case.batch + 4
    return held * (num_parameters(case) + images) + computed * case.batch * CLASSES


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed difference between two contenders, as for the other vision models.

    Without ReLUs gradients are precise. Updates are not: AdamW divides each gradient by its own
    magnitude, so a gradient that is only rounding (softmax is invariant to the keys' biases) gets a
    full step. The sides differ by up to 8e-3 on CPUs, and the losses of later steps by 1.3e-4.
    """
    return vision.tolerances(case, gradient=1e-4, update=3e-2, loss_trace=1e-3, normed=False)


SPEC = vision.make_spec(
    cases=CASES,
    enlarge=partial(enlarge_far, usual=(".ln",), far=FAR),
    shrink=partial(shrink_first, first=("class_token", "conv_proj", "encoder.pos_embedding")),
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    settings=SETTINGS,
    proofs=PROOFS,
    checkpoint_proofs=PROOFS_FROM_CHECKPOINT,
    state_dict_shapes=state_dict_shapes,
    make_training_arrays=training_arrays,
    trains_on=trains_on,
)
