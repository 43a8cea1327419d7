"""No work: measures what the harness costs. Imports the standard library only, not numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchcore.workloads.contract import make_idle_spec
from benchcore.workloads.settings import JAX_OPTIONS, TORCH_OPTIONS, Options

SETTINGS: Mapping[str, Options] = {"jax": JAX_OPTIONS, "torch": TORCH_OPTIONS}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Only the fields that every case has."""

    use_case: Literal["op"]
    batch: int
    precision: Literal["fp32_ieee"]


CASES: dict[str, Case] = {"bare": Case(use_case="op", batch=1, precision="fp32_ieee")}
SPEC = make_idle_spec(cases=CASES, settings=SETTINGS)
