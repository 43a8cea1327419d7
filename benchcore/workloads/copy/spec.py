"""A large array, negated in place: measures memory bandwidth. A sentinel.

In place, so that the bytes counted are the bytes moved. Copying elsewhere would also read the
target's cache lines before they are overwritten, and touch new pages at each step. Negation keeps
a compiler from removing the copy. Cases not called `tiny` exceed every cache of the device they
name, so one buffer is cold enough. A case that fits in a cache would measure the cache, and
become a wrong ceiling for memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec

PROOF_STEPS = 3
"""An odd number: after an even one a step that does nothing leaves the same array."""


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
    """Floating-point operations per step: none, a change of sign is not arithmetic."""
    return 0


def least_bytes(case: Case) -> int:
    """Bytes a step moves: every element is read once and written once."""
    return 2 * 4 * case.elements


def tolerances(case: Case) -> dict[str, float]:
    """Nothing is rounded, so this is the smallest tolerance that float64 arithmetic can meet."""
    return {"copied": 1e-15}


def digest_copy(values: np.ndarray) -> dict[str, np.ndarray]:
    """SHA-256 of the array: 32 whole numbers from 1 on, instead of 2 GiB on a GPU. Turning a sign
    is exact, so that equal arrays have equal digests."""
    hashed = hashlib.sha256(np.ascontiguousarray(values).data).digest()
    return {"copied": np.frombuffer(hashed, np.uint8).astype(np.float64) + 1}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """After each step every number has the other sign."""
    values = arrays.params["values"]
    turns = [-values if step % 2 == 0 else values for step in range(PROOF_STEPS)]
    return {"copied": np.stack([digest_copy(each)["copied"] for each in turns])}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    num_proof_steps=lambda case: PROOF_STEPS,
    reference=reference,
)
