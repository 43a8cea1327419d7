"""What another shape costs: a stack of layers on batches of several lengths, in every step.

Each length is compiled for itself (JAX always, PyTorch with `shapes` = `static`), or PyTorch makes
one program for all (`dynamic`; `automatic` does so once it meets a second length), or the batches
of a `bucketed` case are padded to powers of two before. Besides the step's time, the pass measures
lengths that the program has not seen: `Program.new_shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import JAX_OPTIONS, TORCH_OPTIONS, TORCH_SHAPES, Options

SETTINGS: Mapping[str, Options] = {
    "jax": {"xla": JAX_OPTIONS["xla"]},
    "torch": {**TORCH_OPTIONS, **TORCH_SHAPES},
}
NUM_BUFFERS = 2
Size = Literal["tiny", "shallow", "base", "deep", "k1", "k2", "k7"]
_TINY = (3, 6, 9)
_BASE = (33, 47, 61, 90)
_COUNTED: Mapping[Size, tuple[int, ...]] = {
    "k1": (58,),
    "k2": (47, 69),
    "k7": (33, 39, 47, 55, 61, 81, 90),
}
"""As deep as `base`, with another number of shapes than its four; 58 rows on average each."""
MOST_SHAPES = 8
_DEPTHS: Mapping[Size, int] = {"shallow": 2, "base": 8, "deep": 32}


@dataclass(frozen=True, kw_only=True)
class Case:
    """`depth` layers of `width` on batches of these `lengths`, `batch` rows together.

    `new_lengths` are batches that no step has. Compiled static, torch keeps eight programs of a
    function at most, so there are no more lengths than that (MOST_SHAPES).
    """

    use_case: Literal["infer"] = "infer"
    batch: int
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    size: Size
    width: int
    depth: int
    lengths: tuple[int, ...]
    new_lengths: tuple[int, ...]
    bucketed: bool

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, first to last."""
        return tuple(f"fc{index}" for index in range(self.depth))

    def pad(self, length: int) -> int:
        """Rows that are computed for a batch: its own, or the next power of two."""
        return 1 << (length - 1).bit_length() if self.bucketed else length


def _make_case(
    size: Size, lengths: tuple[int, ...], *, width: int, depth: int, bucketed: bool
) -> Case:
    return Case(
        batch=sum(lengths),
        size=size,
        width=width,
        depth=depth,
        lengths=lengths,
        new_lengths=tuple(each + 1 for each in lengths[: min(3, MOST_SHAPES - len(lengths))]),
        bucketed=bucketed,
    )


def _make_cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for bucketed, end in ((False, ""), (True, "_bucketed")):
        tiny = _make_case("tiny", _TINY, width=8, depth=2, bucketed=bucketed)
        cases[f"tiny_infer{end}"] = tiny
        for size, depth in _DEPTHS.items():
            case = _make_case(size, _BASE, width=256, depth=depth, bucketed=bucketed)
            cases[f"infer_{size}{end}"] = case
        for size, lengths in _COUNTED.items():
            case = _make_case(size, lengths, width=256, depth=_DEPTHS["base"], bucketed=bucketed)
            cases[f"infer_{size}{end}"] = case
    return cases


CASES: dict[str, Case] = _make_cases()


def make_arrays(case: Case, seed: int) -> Arrays:
    """He-normal weights `fcN.weight` (out, in), small biases `fcN.bias`, and the inputs `rows`
    (batch, width), float32: all batches below each other."""
    rng = np.random.Generator(np.random.PCG64(seed))
    params: dict[str, np.ndarray] = {}
    for name in case.layers:
        weight = rng.standard_normal((case.width, case.width), dtype=np.float32)
        params[f"{name}.weight"] = weight * np.float32(np.sqrt(2.0 / case.width))
        params[f"{name}.bias"] = rng.standard_normal(case.width, dtype=np.float32) * np.float32(0.1)
    rows = rng.standard_normal((case.batch, case.width), dtype=np.float32)
    return Arrays(params=params, inputs={"rows": rows})


def split(case: Case, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The batches of a step: (padded length, width), with zeros below the rows of a bucket."""
    ends = accumulate(case.lengths, initial=0)
    return [_pad(case, inputs["rows"][begin:end]) for begin, end in pairwise(ends)]


def make_new(case: Case, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Batches of the new lengths. The rows begin again where there are fewer."""
    rows = inputs["rows"]
    return [_pad(case, np.resize(rows, (each, case.width))) for each in case.new_lengths]


def _pad(case: Case, rows: np.ndarray) -> np.ndarray:
    lacking = case.pad(len(rows)) - len(rows)
    return np.concatenate([rows, np.zeros((lacking, case.width), np.float32)])


def join(case: Case, results: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What a step computed of the rows that are not padding: `result` (batch, width)."""
    kept = [each[:length] for each, length in zip(results, case.lengths, strict=True)]
    return {"result": np.concatenate(kept)}


def flops(case: Case) -> int:
    """Operations of the layers' products, those of the padding included."""
    rows = sum(case.pad(length) for length in case.lengths)
    return 2 * rows * case.width**2 * case.depth


def least_bytes(case: Case) -> int:
    """Bytes a step must move: the weights once for all batches, and the rows in and out."""
    rows = sum(case.pad(length) for length in case.lengths)
    return 4 * case.width * (case.depth * (case.width + 1) + 2 * rows)


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The evidence of both sets of inputs in turn, in float64."""
    params = {name: array.astype(np.float64) for name, array in arrays.params.items()}
    results = []
    for inputs in roll(arrays.inputs, NUM_BUFFERS):
        value = inputs["rows"].astype(np.float64)
        for index, name in enumerate(case.layers):
            value = np.maximum(value, 0.0) if index else value
            value = value @ params[f"{name}.weight"].T + params[f"{name}.bias"]
        results.append(value)
    return {"result": np.stack(results)}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=lambda case: {"result": 3e-5 if case.size == "deep" else 1e-5},
    num_buffers=lambda case: NUM_BUFFERS,
    reference=reference,
    settings=SETTINGS,
)
