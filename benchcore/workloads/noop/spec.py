"""No work: measures what the harness costs. Imports the standard library only, not numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.settings import JAX_OPTIONS, TORCH_OPTIONS, Options

SETTINGS: Mapping[str, Options] = {"jax": JAX_OPTIONS, "torch": TORCH_OPTIONS}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Only the fields that every case has."""

    use_case: Literal["op"]
    batch: int
    precision: Literal["fp32_ieee"]


CASES: dict[str, Case] = {"bare": Case(use_case="op", batch=1, precision="fp32_ieee")}


def make_arrays(case: Case, seed: int) -> Arrays:
    """No parameters and no inputs."""
    return Arrays(params={}, inputs={})


def flops(case: Case) -> int:
    """Floating-point operations per step: none."""
    return 0


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: none."""
    return 0


def tolerances(case: Case) -> dict[str, float]:
    """Nothing is computed, so there is nothing to compare."""
    return {}


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    settings=SETTINGS,
)
