"""No work, but every kind of failure, to test that each becomes a status. Never in a profile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from benchcore.program import Arrays
from benchcore.workloads.contract import make_idle_spec

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


SPEC = make_idle_spec(cases=CASES, make_arrays=make_arrays, injects_faults=True)
