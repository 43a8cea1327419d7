"""SHA-256 of a buffer in the standard library: real work without a framework, equal on all
machines with the same processor. Imports the standard library only, not numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec


@dataclass(frozen=True, kw_only=True)
class Case:
    """A step hashes `kib` KiB."""

    use_case: Literal["op"] = "op"
    batch: int = 1
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    kib: int


CASES: dict[str, Case] = {"tiny_op": Case(kib=64), "cpu_1m": Case(kib=1024)}


def make_arrays(case: Case, seed: int) -> Arrays:
    """No parameters and no inputs: the buffer is zeros, which take as long as any other bytes."""
    return Arrays(params={}, inputs={})


def flops(case: Case) -> int:
    """Floating-point operations per step: none."""
    return 0


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: none, the buffer stays in a cache."""
    return 0


def tolerances(case: Case) -> dict[str, float]:
    """There is nothing to compare."""
    return {}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
)
