"""What crosses the border between orchestrator, conductor and contender: JSON, never pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from benchcore.device_names import parse_device
from benchcore.json_types import Amount, Hash, Name, Sha256, Text, Time, from_json, is_sha256

SCHEMA = 1
"""Number of the documents' layout. A reader refuses a number that it does not know."""
METHOD = 3
"""Number of the measuring method. A series continues across a new number only over a bridge."""
BEAT_S = 2.0
"""Seconds between two signs of life of a conductor or a proof."""

Framework = Literal["jax", "torch", "stdlib"]
ALL_FRAMEWORKS: tuple[Framework, ...] = ("jax", "torch", "stdlib")
ComparedFramework = Literal["jax", "torch"]
COMPARED: tuple[ComparedFramework, ...] = ("jax", "torch")
Status = Literal[
    "ok",
    "workaround",
    "oom",
    "killed",
    "crash",
    "timeout",
    "numerics",
    "invalid_physics",
    "unsupported",
    "environment",
]

Role = Literal["newest", "previous", "pinned", "system"]
"""How a contender's version was chosen."""
Track = Literal["default", "tuned", "defects", "calibration"]
DEFAULT_TRACK = "default"
DEFECT_TRACK = "defects"
"""The track of duels that are wrong on purpose: none of their ratios ever counts."""
CALIBRATION_TRACK = "calibration"
"""The track of calibration runs, whose truth is known: they test our verdicts, not a framework."""

StoppedBy = Literal["target", "budget", "max_starts", "no_pair"]
"""What ended a duel: `no_pair` = fewer than two contenders were left, so no interval to narrow."""


def name_case(workload: str, case: str, track: str = DEFAULT_TRACK) -> str:
    """`mlp train_b128`, with the track where it is not the default one."""
    return f"{workload} {case}" + ("" if track == DEFAULT_TRACK else f" ({track})")


@dataclass(frozen=True, kw_only=True)
class EnvironmentRecord:
    """The environment a contender runs in, as every result remembers it."""

    name: Name
    key: Text
    lock_sha256: Sha256 | None
    python: Text
    python_version: Text
    build: Text
    packages: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ContenderIdentity:
    """Which contender of a duel it is. Orders, documents, records and judged times extend it."""

    name: Name
    arm: Name
    role: str
    framework: str
    version: Text


@dataclass(frozen=True, kw_only=True)
class ContenderOrder(ContenderIdentity):
    """One contender as the conductor must start it."""

    framework: Framework
    settings: dict[str, Any]
    environment: EnvironmentRecord
    environment_failure: str | None
    """Why the environment could not be had: the contender then gets the status `environment`."""


DataMode = Literal["device-resident", "host-resident", "end-to-end"]
"""Where an epoch's batches are when its clock starts; `end-to-end`: in their files."""
DATA_MODES: tuple[DataMode, ...] = ("device-resident", "host-resident", "end-to-end")
Layout = Literal["NHWC", "NCHW"]


@dataclass(frozen=True, kw_only=True)
class RowOrder:
    """One array of an example: its numpy dtype and shape, such as uint8 (224, 224, 3)."""

    name: Text
    dtype: Text
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DatasetOrder:
    """What a duel trains on: each round is then an epoch."""

    name: str
    listing: str
    """A JSON file that names every image of both splits, in order, with its label; or the files
    of arrays."""
    sha256: str
    """Hash of the listing's names, labels and sizes; or of the arrays."""
    num_classes: int
    num_train: int
    num_val: int
    """Labels to validate on: of a text whose every token is predicted, one for each."""
    batch: int
    side: int | None
    """Height and width of a crop in pixels; None = not images."""
    rows: tuple[RowOrder, ...]
    """The arrays of an example, `labels` last. Images are upright."""
    mode: DataMode
    loader_python: str
    """The Python that decodes: one with Pillow."""
    workers: int
    batch_timeout_s: float
    target_accuracy: float | None = None
    """In validation, 0 to 1: how long training takes until then. Each start then has its own seed;
    None = all starts have the duel's."""


@dataclass(frozen=True, kw_only=True)
class CheckpointOrder:
    """Weights that stand in for the seeded ones, the same for every contender."""

    sha256: str
    """Hash of the file that the user named."""
    weights: str
    """An .npz with its arrays under canonical names."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """The job around a duel. What Slurm did not report is None."""

    job_id: Text
    node: str | None
    partition: str | None
    gpus: tuple[Text, ...]
    """Indices on the node, as Slurm numbers them."""
    queue_s: Amount | None
    """Seconds from submission to begin."""
    exclusive: bool | None
    """Whether it had its nodes for itself."""
    flow_run: str | None
    """Id of the Prefect flow run that it was submitted for."""


@dataclass(frozen=True, kw_only=True)
class DuelLimits:
    """The limits of a duel, and what it measures besides time. A plan and an order store
    these fields next to their own (`flatten_limits`), with every number filled in."""

    starts: int = 3
    """The fewest starts."""
    max_starts: int | None = None
    """None = as many as `starts`, however wide the intervals are."""
    compilations: int = 3
    """This many first starts compile with empty caches; each later start reuses the caches of one
    of these. 1 = cheapest, but then the interval does not cover what another compilation would
    change. With 2 the interval is very wide."""
    rounds: int = 10
    """The fewest rounds of a start."""
    max_rounds: int | None = None
    """None = as many as `rounds`."""
    target: float = 0.01
    """Half of the 95 % interval over starts at which a duel ends."""
    budget_s: float = 300.0
    """Seconds after which a duel starts nothing more, once it has its fewest starts."""
    block_ms: float = 100.0
    warm_up_limit_s: float = 3.0
    prepare_timeout_s: float = 300.0
    """For a contender's process, from its begin to its first block."""
    block_timeout_s: float = 120.0
    freeze: bool = True
    """Whether a contender is stopped while another one runs."""
    passes: bool = True
    """Whether memory, profile and energy are measured too, and compilation with filled caches."""
    probe: bool = False
    """Whether the machine itself is measured too, without a framework."""

    @property
    def most_starts(self) -> int:
        """No start follows this many."""
        return self.max_starts or self.starts

    @property
    def most_rounds(self) -> int:
        """No round of a start follows this many."""
        return self.max_rounds or self.rounds

    def compilation_of(self, start: int) -> int:
        """The start whose caches this one uses: its own index if it compiles, else an earlier one.
        Later starts take turns, so compilations have equally many."""
        return start % self.compilations

    def exactly(self, *, starts: int, rounds: int) -> DuelLimits:
        """The same limits with a fixed number of starts and of rounds per start."""
        return dataclasses.replace(
            self, starts=starts, max_starts=None, rounds=rounds, max_rounds=None
        )

    def fill_in(self) -> DuelLimits:
        """The same limits with no None left, as plans and orders store them."""
        return dataclasses.replace(self, max_starts=self.most_starts, max_rounds=self.most_rounds)


@dataclass(frozen=True, kw_only=True)
class EarlierPasses:
    """The passes of an earlier duel run of the same contenders, and what they depend on."""

    duel_run: Hash
    campaign: Name
    at: Time
    snapshot: Sha256
    environments: dict[str, str]
    """By contender the key of its environment."""
    device: dict[str, Any]
    """Its `describe_conditions`."""


def describe_conditions(device: Mapping[str, Any]) -> dict[str, Any]:
    """What passes depend on of a device and its host, from its record in a document."""
    names = ("fingerprint", "driver", "clock_policy", "cpu_model", "cpus")
    return {name: device.get(name) for name in names}


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
    limits: DuelLimits
    harness_version: str
    snapshot: str
    site: str
    dataset: DatasetOrder | None
    checkpoint: CheckpointOrder | None = None
    slurm: SlurmJob | None = None
    earlier_passes: tuple[EarlierPasses, ...] = ()
    """Newest first. Passes are not measured again where one of these is still valid."""
    contenders: tuple[ContenderOrder, ...]

    def seed_of(self, start: int) -> int:
        """What decides a start's weights, its inputs, and the order of its data, on every side."""
        has_own = self.dataset is not None and self.dataset.target_accuracy is not None
        return self.seed + start if has_own else self.seed

    def find_passes(self, device: Mapping[str, Any]) -> EarlierPasses | None:
        """Earlier passes that are still valid on this device: neither it nor its driver, clock
        policy or host, an environment or the measuring code has changed since."""
        environments = {each.name: each.environment.key for each in self.contenders}
        same = (self.snapshot, environments, describe_conditions(device))
        for each in self.earlier_passes:
            if (each.snapshot, each.environments, each.device) == same:
                return each
        return None


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
    test_images: str | None
    """An .npz with uint8 images (high, wide, 3); None = noise alone."""
    references: str | None
    """A folder that stores float64 evidence for the next order; None = not stored."""
    checkpoint: CheckpointOrder | None = None
    timeout_s: float
    harness_version: str
    snapshot: str
    contenders: tuple[ContenderOrder, ...]


def decode_order(document: Mapping[str, Any]) -> DuelOrder:
    """Read a duel order. Raises ValueError on an unknown schema or device, or a wrong key."""
    order = _decode_order(DuelOrder, gather_limits(document))
    if order.dataset is not None:
        check_dataset(order.dataset)
    return order


def decode_proof_order(document: Mapping[str, Any]) -> ProofOrder:
    """Read a proof order. Raises ValueError on an unknown schema or device, or a wrong key."""
    return _decode_order(ProofOrder, document)


def check_dataset(dataset: DatasetOrder) -> None:
    """Raises ValueError for an unknown data mode, or an accuracy out of range."""
    target = dataset.target_accuracy
    if target is not None and not 0 < target <= 1:
        raise ValueError(f"wanted a target accuracy above 0, at most 1, got {target!r}")
    if dataset.mode not in DATA_MODES:
        raise ValueError(f"no data mode {dataset.mode!r:.100}; modes are {', '.join(DATA_MODES)}")


_Order = TypeVar("_Order", DuelOrder, ProofOrder)


def _decode_order(kind: type[_Order], document: Mapping[str, Any]) -> _Order:
    if document.get("schema") != SCHEMA:
        raise ValueError(
            f"wanted a {kind.__name__} with schema {SCHEMA}, got {document.get('schema')!r}; "
            "write it again with this version of deadheat"
        )
    order = from_json(kind, document)
    if order.checkpoint is not None and not is_sha256(order.checkpoint.sha256):
        raise ValueError(f"wanted 64 hexadecimal digits, got {order.checkpoint.sha256!r:.100}")
    parse_device(order.device)
    return order


def flatten_limits(document: Mapping[str, Any]) -> dict[str, Any]:
    """A duel's JSON as plans and orders store it: its limits next to its other fields."""
    own = {key: value for key, value in document.items() if key != "limits"}
    return {**own, **document["limits"]}


def gather_limits(document: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `flatten_limits`."""
    names = [field.name for field in dataclasses.fields(DuelLimits)]
    limits = {name: document[name] for name in names if name in document}
    return {**{key: document[key] for key in document if key not in limits}, "limits": limits}


def encode(order: DuelOrder | ProofOrder) -> dict[str, Any]:
    """The JSON document of an order; `decode_order` or `decode_proof_order` reads it back."""
    document = json.loads(json.dumps(dataclasses.asdict(order)))
    return flatten_limits(document) if isinstance(order, DuelOrder) else document


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
