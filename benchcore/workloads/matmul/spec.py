"""One large square matrix product: what the device can compute. A sentinel of the physics gate.

Cases that are not called `tiny` are large enough to reach the ceiling of the device they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.program import Arrays


@dataclass(frozen=True, kw_only=True)
class Case:
    """`side` is the height and width of every matrix."""

    use_case: Literal["op"]
    batch: int
    precision: Literal["fp32_ieee"]
    side: int


CASES: dict[str, Case] = {
    "tiny_op": Case(use_case="op", batch=1, precision="fp32_ieee", side=32),
    "cpu_1024": Case(use_case="op", batch=1, precision="fp32_ieee", side=1024),
    "gpu_8192": Case(use_case="op", batch=1, precision="fp32_ieee", side=8192),
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
    """Operations of the product, a multiply-add being two."""
    return 2 * case.side**3


def least_bytes(case: Case) -> int:
    """Bytes that must cross the memory border once in a step: two matrices in, one out."""
    return 3 * 4 * case.side**2


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(max|a|, max|b|) between two contenders.

    fp32_ieee: either side is 1e-7 to 6e-7 from float64 at sides of 32 to 1024; TF32 errs by 3e-4.
    """
    return {"fp32_ieee": {"product": 1e-5}}[case.precision]


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The product in float64."""
    a, b = (arrays.inputs[name].astype(np.float64) for name in ("a", "b"))
    return {"product": a @ b}
