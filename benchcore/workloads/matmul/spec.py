"""One large square matrix product: measures peak compute. A sentinel of the physics check.

Cases not called `tiny` are large enough to reach the ceiling of the device they name. A ceiling
uses one pair of matrices, which may stay in a cache; a `cold` case rotates 16 pairs (128 MiB).
At the GPU's size a single pair (512 MiB in float32) exceeds every cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.program import Arrays, Precision
from benchcore.workloads.contract import Spec
from benchcore.workloads.rotation import roll


@dataclass(frozen=True, kw_only=True)
class Case:
    """`side` is the height and width of every matrix; steps rotate over `buffers` pairs of them."""

    use_case: Literal["op"]
    batch: int
    precision: Precision
    side: int
    buffers: int


def _op(precision: Precision, side: int, buffers: int = 1) -> Case:
    return Case(use_case="op", batch=1, precision=precision, side=side, buffers=buffers)


# Autocast computes a product as bf16 does, and a CPU has no TF32: neither has a ceiling of its own
# there. The GPU's cases have not been run on a GPU.
CASES: dict[str, Case] = {
    "tiny_op": _op("fp32_ieee", 32, buffers=4),
    "tiny_op_bf16": _op("bf16", 32, buffers=4),
    "cpu_1024": _op("fp32_ieee", 1024),
    "cpu_1024_cold": _op("fp32_ieee", 1024, buffers=16),
    "cpu_1024_bf16": _op("bf16", 1024),
    "gpu_8192": _op("fp32_ieee", 8192),
    "gpu_8192_tf32": _op("tf32", 8192),
    "gpu_8192_bf16": _op("bf16", 8192),
}


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs: `a` and `b` (side, side) float32, standard normal."""
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = (case.side, case.side)
    return Arrays(
        params={},
        inputs={name: rng.standard_normal(shape, dtype=np.float32) for name in ("a", "b")},
    )


def flops(case: Case) -> int:
    """Operations of the product; one multiply-add counts as two."""
    return 2 * case.side**3


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: two matrices in, one out."""
    return 3 * (2 if case.precision == "bf16" else 4) * case.side**2


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    fp32_ieee: both sides differ from float64 by 1e-7 to 7e-7 at sides of 32 to 1024. TF32 errs by
    3e-4; its tolerance is six times that (not run on a GPU). bf16: the output is rounded to 8 bits,
    which differs from float64 by 4e-3 on both sides at both sizes.
    """
    return {"product": {"fp32_ieee": 1e-5, "tf32": 2e-3, "bf16": 2e-2}[case.precision]}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The products of all pairs in turn, in float64."""
    pairs = roll(arrays.inputs, case.buffers)
    return {"product": np.stack([each["a"].astype(np.float64) @ each["b"] for each in pairs])}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    num_buffers=lambda case: case.buffers,
    reference=reference,
)
