"""No work, but every kind of failure, to test that each becomes a status. Never in a profile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec

Fault = Literal[
    "segfault",
    "abort",
    "killed",
    "hang_in_init",
    "hang_in_build",
    "hang_in_step",
    "out_of_memory",
    "not_finite",
    "garbage",
    "partial_message",
    "exit_zero",
    "raise_in_build",
    "raise_late",
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`fault` is the failure; the contender's setting `compile=healthy` switches it off."""

    use_case: Literal["op"] = "op"
    batch: int = 1
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    fault: Fault


CASES: dict[str, Case] = {fault: Case(fault=fault) for fault in Fault.__args__}


def make_arrays(case: Case, seed: int) -> Arrays:
    """No arrays. Blocks forever for the fault that hangs in the stage `init`."""
    if case.fault == "hang_in_init":
        time.sleep(3600)
    return Arrays(params={}, inputs={})


def flops(case: Case) -> int:
    """Floating-point operations per step: none."""
    return 0


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: none."""
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
    injects_faults=True,
)
