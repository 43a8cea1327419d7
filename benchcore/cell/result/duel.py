"""The types of a result document's duel, and of the machine it ran on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from benchcore.json_types import (
    ABSENT,
    Amount,
    Count,
    FieldRule,
    Hash,
    Name,
    Positive,
    Sha256,
    Text,
    Time,
)
from benchcore.protocol import DataMode, SlurmJob, StoppedBy, Track


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The training dataset, without paths of this machine. With it, each round is an epoch."""

    name: Text
    sha256: Sha256
    num_classes: Positive
    num_train: Positive
    num_val: Positive
    mode: DataMode
    workers: Positive
    target_accuracy: Annotated[float, FieldRule(exclusive_minimum=0, maximum=1)] | None = None
    """In validation. With it each start has its own seed."""


@dataclass(frozen=True, kw_only=True)
class PassesOf:
    """The earlier duel run whose passes hold for this one."""

    duel_run: Hash
    campaign: Name
    at: Time


@dataclass(frozen=True, kw_only=True)
class Duel:
    """The case, its limits, and the analytic work of a step.

    Fields that may be absent are newer than the first results.
    """

    hash: Hash
    workload: Name
    case: Name
    dataset: Dataset | None = None
    checkpoint: Sha256 | None = None
    use_case: Text
    batch: Positive
    precision: Text
    track: Track
    sizes: dict[str, Any]
    seed: Count
    starts: Positive
    max_starts: Positive = ABSENT
    compilations: Positive = ABSENT
    rounds: Positive
    max_rounds: Positive = ABSENT
    target: Annotated[float, FieldRule(exclusive_minimum=0)] = ABSENT
    budget_s: Amount = ABSENT
    stopped_by: StoppedBy = ABSENT
    """The limit that ended the duel; absent in documents with a fixed number of starts."""
    freeze: bool
    passes_of: PassesOf = ABSENT
    """Memory, profile and energy were measured then; absent where this duel measured them."""
    flops_per_step: Count
    least_bytes_per_step: Count


@dataclass(frozen=True, kw_only=True)
class Harness:
    """The code that measured."""

    version: Text
    snapshot: Sha256


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """The device that the contenders computed on."""

    name: Text
    kind: Literal["cpu", "gpu", "tpu"]
    model: Text
    count: Count
    memory_bytes: Count | None
    driver: str | None
    clock_policy: str | None = None
    """Frequency governor and boost of CPUs, application clock and power limit of a GPU; null: not
    known."""
    mig: str | None = None
    """For a GPU: off, compute and GPU slices (1c.3g), on without an instance; null: no support."""
    pci_address: str | None = None
    """The board's of a GPU, as NVML writes it; null: not known."""
    missing: dict[str, Text] = ABSENT
    """Why a fact of a GPU is null, where NVML refuses it."""
    cpu_model: Text = ABSENT
    """For a GPU: the CPUs of its host."""
    cpus: Positive = ABSENT
    fingerprint: Hash


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of the allocation; null: NVML refuses it."""

    uuid: Text | None
    name: Text | None
    memory_bytes: Count | None


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine around the device."""

    cpu_model: Text
    cpus: Positive
    cache_bytes: Count | None = None
    """Data caches of the CPUs in use; absent in documents from before it was recorded."""
    memory_bytes: Count
    system: Text


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Where and when a duel ran."""

    id: Text
    site: Name
    node: Text
    slurm_job_id: str | None
    slurm: SlurmJob | None = None
    """The Slurm job of the duel; null: none."""
    started_at: Time
    ended_at: Time
    device: DeviceRecord
    gpus: list[Gpu]
    host: Host
