"""SHA-256 of a buffer in the standard library: real work without a framework, equal on all
machines with the same processor. Imports the standard library only, not numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchcore.workloads.contract import make_idle_spec


@dataclass(frozen=True, kw_only=True)
class Case:
    """A step hashes `kib` KiB."""

    use_case: Literal["op"] = "op"
    batch: int = 1
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    kib: int


CASES: dict[str, Case] = {"tiny_op": Case(kib=64), "cpu_1m": Case(kib=1024)}


SPEC = make_idle_spec(cases=CASES)
"""It has no arrays: its buffer of zeros takes as long as any other bytes, and stays in a cache."""
