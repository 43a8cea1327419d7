"""What crosses the border between orchestrator, conductor and contender: JSON, never pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

SCHEMA = 1
"""Number of the documents' layout. A reader refuses a number that it does not know."""
METHOD = 1
"""Number of the way we measure. A new number breaks every series: see CHANGELOG.md."""

Framework = Literal["jax", "torch", "stdlib"]
FRAMEWORKS: tuple[Framework, ...] = ("jax", "torch", "stdlib")
Status = Literal[
    "ok",
    "workaround",
    "oom",
    "crash",
    "timeout",
    "numerics",
    "invalid_physics",
    "unsupported",
    "environment",
]

DEFECT_TRACK = "defects"
"""The track of duels that are wrong on purpose: none of their ratios ever counts."""
CALIBRATION_TRACK = "calibration"
"""The track of trials whose truth is known: they tell of our verdicts, and never of a framework."""

StoppedBy = Literal["target", "budget", "max_starts", "no_pair"]
"""What ended a duel: `no_pair` = fewer than two contenders were left, so no interval to narrow."""


_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEVICE = re.compile(r"(cpu|tpu|cuda)(?:(?<=cuda):(0|[1-9][0-9]{0,2}))?")


@dataclass(frozen=True)
class Device:
    """What a device's name says; `cuda` is the first GPU."""

    kind: str
    """`cpu`, `tpu` or `cuda`."""
    ordinal: int = 0


def parse_device(name: object) -> Device:
    """Read `cpu`, `cuda`, `cuda:N` or `tpu`. Raises ValueError for any other name."""
    found = _DEVICE.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"no device {name!r:.100}; devices are 'cpu', 'cuda', 'cuda:N' and 'tpu'")
    kind, ordinal = found.groups()
    return Device(kind, int(ordinal or 0))


@dataclass(frozen=True, kw_only=True)
class EnvironmentRecord:
    """The environment a contender runs in, as every result remembers it."""

    name: str
    key: str
    lock_sha256: str | None
    python: str
    python_version: str
    build: str
    packages: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ContenderOrder:
    """One contender as the conductor is told to start it."""

    name: str
    arm: str
    role: str
    framework: Framework
    version: str
    settings: dict[str, Any]
    environment: EnvironmentRecord
    environment_failure: str | None
    """Why the environment could not be had: the contender then gets the status `environment`."""


DataMode = Literal["device-resident", "host-resident", "end-to-end"]
"""Where an epoch's batches lie when its clock starts; `end-to-end`: in their image files."""
DATA_MODES: tuple[DataMode, ...] = ("device-resident", "host-resident", "end-to-end")
Layout = Literal["NHWC", "NCHW"]


@dataclass(frozen=True, kw_only=True)
class DatasetOrder:
    """What a duel trains on: each round is then an epoch."""

    name: str
    listing: str
    """A JSON file that names every image of both splits, in order, with its label."""
    sha256: str
    """Of the listing's names, labels and sizes."""
    num_classes: int
    num_train: int
    num_val: int
    batch: int
    side: int
    """Height and width of a crop in pixels."""
    mode: DataMode
    producer: str
    """The Python that decodes: one with Pillow."""
    workers: int
    batch_timeout_s: float


@dataclass(frozen=True, kw_only=True)
class CheckpointOrder:
    """Weights that stand in for the seeded ones, the same for every contender."""

    sha256: str
    """Of the file that a user named, which itself stays where it is."""
    weights: str
    """An .npz with its arrays under canonical names."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """The job around a duel. What Slurm did not tell is None."""

    job_id: str
    node: str | None
    partition: str | None
    gpus: tuple[str, ...]
    """Indices on the node, as Slurm numbers them."""
    queue_s: float | None
    exclusive: bool | None
    """Whether it had its nodes for itself."""
    flow_run: str | None
    """Id of the Prefect flow run that it was submitted for."""


@dataclass(frozen=True, kw_only=True)
class DuelOrder:
    """Everything the conductor needs to run one duel; written by the orchestrator as JSON."""

    schema: int
    method: int
    duel_run: str
    campaign: str
    duel_hash: str
    workload: str
    case: str
    track: str
    device: str
    seed: int
    starts: int
    max_starts: int
    rounds: int
    max_rounds: int
    target: float
    budget_s: float
    block_ms: float
    warm_up_limit_s: float
    prepare_timeout_s: float
    block_timeout_s: float
    freeze: bool
    passes: bool = True
    """Whether cold compilation, memory, profile and energy are measured beside the time."""
    probe: bool = False
    """Whether the machine itself is measured beside them, without a framework."""
    harness_version: str
    snapshot: str
    site: str
    dataset: DatasetOrder | None
    checkpoint: CheckpointOrder | None = None
    slurm: SlurmJob | None = None
    contenders: tuple[ContenderOrder, ...]


@dataclass(frozen=True, kw_only=True)
class ProofOrder:
    """Which contenders to prove equal, on the proof cases of a workload, in one precision."""

    schema: int
    workload: str
    precision: str
    use_cases: tuple[str, ...]
    device: str
    seed: int
    num_seeds: int
    photographs: str | None
    """An .npz with uint8 images (high, wide, 3); None = noise alone."""
    oracles: str | None
    """A folder where evidence in float64 is kept for the next order; None = kept nowhere."""
    checkpoint: CheckpointOrder | None = None
    timeout_s: float
    harness_version: str
    snapshot: str
    contenders: tuple[ContenderOrder, ...]


_T = TypeVar("_T")


def decode_order(document: Mapping[str, Any]) -> DuelOrder:
    """Read a duel order. Raises ValueError on an unknown schema or device, or a wrong key."""
    dataset = decode_dataset(document.get("dataset"))
    job = document.get("slurm")
    slurm = job and _decode(SlurmJob, {**job, "gpus": tuple(job.get("gpus", ()))})
    order = _decode_order(DuelOrder, {**document, "dataset": dataset, "slurm": slurm})
    parse_device(order.device)
    return order


def decode_dataset(document: Mapping[str, Any] | None) -> DatasetOrder | None:
    """Read what a duel trains on. Raises ValueError on a wrong key or mode."""
    if document is None:
        return None
    dataset = _decode(DatasetOrder, document)
    if dataset.mode not in DATA_MODES:
        raise ValueError(f"no data mode {dataset.mode!r:.100}; modes are {', '.join(DATA_MODES)}")
    return dataset


def decode_proof_order(document: Mapping[str, Any]) -> ProofOrder:
    """Read a proof order. Raises ValueError on an unknown schema or device, or a wrong key."""
    order = _decode_order(ProofOrder, document)
    parse_device(order.device)
    return order


def _decode_order(kind: type[_T], document: Mapping[str, Any]) -> _T:
    if document.get("schema") != SCHEMA:
        raise ValueError(
            f"wanted a {kind.__name__} with schema {SCHEMA}, got {document.get('schema')!r}; "
            "write it again with this version of deadheat"
        )
    checkpoint = document.get("checkpoint")
    contenders = tuple(
        _decode(
            ContenderOrder,
            {**item, "environment": _decode(EnvironmentRecord, item.get("environment", {}))},
        )
        for item in document.get("contenders", ())
    )
    given = {"contenders": contenders, "checkpoint": checkpoint and _decode_checkpoint(checkpoint)}
    return _decode(kind, {**document, **given})


def _decode_checkpoint(document: Mapping[str, Any]) -> CheckpointOrder:
    checkpoint = _decode(CheckpointOrder, document)
    if not is_sha256(checkpoint.sha256):
        raise ValueError(f"wanted 64 hexadecimal digits, got {checkpoint.sha256!r:.100}")
    return checkpoint


def is_sha256(value: object) -> bool:
    """Whether it is a SHA-256, as documents write it: 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _decode(kind: type[_T], document: Mapping[str, Any]) -> _T:
    wanted = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if wanted != set(document):
        missing, unknown = sorted(wanted - set(document)), sorted(set(document) - wanted)
        raise ValueError(
            f"a {kind.__name__} lacks {missing} and has unknown {unknown}; "
            "write it again with this version of deadheat"
        )
    return kind(**document)


def encode(order: DuelOrder | ProofOrder) -> dict[str, Any]:
    """The JSON document of an order; `decode_order` or `decode_proof_order` reads it back."""
    return json.loads(json.dumps(dataclasses.asdict(order)))


def name_part(path: Path) -> Path:
    """Where to write what becomes the file in one rename. No other process writes there, on
    whichever node that shares the folder."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")


def write_json(path: Path, document: object) -> None:
    """Write JSON so that a reader sees the whole document or none: `.part`, sync, rename."""
    part = name_part(path)
    with part.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
