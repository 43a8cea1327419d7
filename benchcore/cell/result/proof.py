"""The types of a proof document: the errors of two contenders against a float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from benchcore.cell.result.duel import DeviceRecord, Harness
from benchcore.json_types import Amount, FieldRule, Sha256
from benchcore.protocol import Framework

_Short = Annotated[str, FieldRule(max_length=100)]


@dataclass(frozen=True, kw_only=True)
class ProofContender:
    """One contender of a proof."""

    name: _Short
    arm: str
    framework: Framework
    version: str
    environment_key: _Short
    lock_sha256: str | None
    status: str


@dataclass(frozen=True, kw_only=True)
class ProofRow:
    """One quantity of a pair. Errors are relative to the reference; null = can't be compared."""

    use_case: _Short
    a: _Short
    b: _Short
    quantity: str
    reference_error: Amount | None
    reference_bound: Amount | None
    a_error: Amount | None
    a_bound: Amount | None
    b_error: Amount | None
    b_bound: Amount | None
    passed: bool
    reason: str
    first_drift: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProofDocument:
    """The result of the equivalence proof of one workload in one precision."""

    schema: Literal[1]
    workload: _Short
    precision: _Short
    checkpoint: Sha256 | None = None
    num_seeds: Annotated[int, FieldRule(minimum=1, maximum=1000)]
    harness: Harness
    device: DeviceRecord
    started_at: str
    ended_at: Annotated[str, FieldRule(pattern=r"[+-]\d\d:\d\d$")]
    contenders: Annotated[list[ProofContender], FieldRule(min_items=2)]
    rows: list[ProofRow]
    drift: list[dict[str, Any]]
