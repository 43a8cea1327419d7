"""A large array copied onto itself with its sign turned: what the memory can move. A sentinel.

In place, so that what is counted is what moves: copying elsewhere would also fetch the target's
cache lines before they are overwritten, and hand out fresh pages at each step. The sign turns, so
that no compiler may leave the copy out. Cases that are not called `tiny` exceed every cache of
the device they name: nothing of them is hot, and no second buffer would make them colder. A case
that fits in a cache would measure the cache, and be taken for the memory's ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec


@dataclass(frozen=True, kw_only=True)
class Case:
    """`elements` float32 numbers are read and written in a step."""

    use_case: Literal["op"]
    batch: int
    precision: Literal["fp32_ieee"]
    elements: int


CASES: dict[str, Case] = {
    "tiny_op": Case(use_case="op", batch=1, precision="fp32_ieee", elements=4096),
    "cpu_256m": Case(use_case="op", batch=1, precision="fp32_ieee", elements=2**26),
    "gpu_2g": Case(use_case="op", batch=1, precision="fp32_ieee", elements=2**29),
}


def make_arrays(case: Case, seed: int) -> Arrays:
    """Parameter: `values` (elements,) float32, uniform in [0, 1)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return Arrays(params={"values": rng.random(case.elements, dtype=np.float32)}, inputs={})


def flops(case: Case) -> int:
    """Floating-point operations of a step: none, turning a sign is no arithmetic."""
    return 0


def least_bytes(case: Case) -> int:
    """Bytes that cross the memory border in a step: every element in, and every element out."""
    return 2 * 4 * case.elements


def tolerances(case: Case) -> dict[str, float]:
    """Nothing is rounded; the smallest tolerance that float64 arithmetic keeps."""
    return {"copied": 1e-15}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """After one step every number has the other sign."""
    return {"copied": -arrays.params["values"].astype(np.float64)}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    reference=reference,
)
