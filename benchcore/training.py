"""A duel of training on an image folder: what a user asks for, as a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchcore import matrix
from benchcore.adhoc import parse_arm
from benchcore.campaign import draft_plan
from benchcore.catalog import list_workloads, load_spec
from benchcore.cell.document import size_case
from benchcore.cell.host import usable_cpus
from benchcore.comparison import Wanted, find_case
from benchcore.errors import UserError
from benchcore.image_folder import ImageFolder, read_image_folder
from benchcore.matrix import Plan
from benchcore.profiles import Match, Profile
from benchcore.protocol import DATA_MODES, DataMode, DatasetOrder
from benchcore.state import State

_PREPARE_S = 1800.0
_BATCH_S = 120.0
"""A producer that gives no batch for so long hangs."""
_SMALLEST_SIDE = 32
_LIMITS = {"--epochs": 1000, "--batch-size": 4096, "--starts": 100, "--workers": 256}


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a user asked for: a and b are a version request and its settings each."""

    workload: str
    dataset: Path
    epochs: int
    batch: int
    side: int
    mode: str
    precision: str
    a: Sequence[str]
    b: Sequence[str]
    starts: int
    device: str = "cpu"
    workers: int | None = None
    """Threads that decode; None = as many as there are CPUs."""
    skip_broken: bool = False
    checkpoint: str | None = None
    """SHA-256 of the file whose weights training begins with, as `take_checkpoint` gives it."""


def draft_training(
    asked: Training,
    state: State,
    *,
    site: str = "local",
    campaign: str | None = None,
    python: str | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Plan:
    """The plan of one duel whose rounds are epochs. Raises UserError."""
    case = _check(asked)
    arms = tuple(parse_arm(",".join(each)) for each in (asked.a, asked.b))
    folder = read_image_folder(
        asked.dataset, state.datasets, skip_broken=asked.skip_broken, report=report
    )
    dataset = _order_dataset(asked, folder)
    match = Match(
        workload=asked.workload,
        case=case,
        arms=arms,
        expected_s=600.0,
        checkpoint=asked.checkpoint,
    )
    profile = Profile(
        name="train",
        matches=(match,),
        starts=asked.starts,
        rounds=asked.epochs,
        device=asked.device,
        prepare_timeout_s=_PREPARE_S,
        block_timeout_s=3 * _BATCH_S,
    )
    name = campaign or f"train-{asked.workload}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}"
    plan = draft_plan(profile, site=site, campaign=name.replace("_", "-"), python=python)
    return matrix.train_on(plan, dataset)


def find_step(asked: Training) -> Any:
    """The case of a single step, of the batch and side asked for. Raises UserError."""
    case = load_spec(asked.workload).CASES[_check(asked)]
    return size_case(case, asked.batch, asked.side)


def _check(asked: Training) -> str:
    """The case of a single step that an epoch is made of. Raises UserError."""
    if "make_training_arrays" not in vars(load_spec(asked.workload)):
        able = [
            name for name in list_workloads() if "make_training_arrays" in vars(load_spec(name))
        ]
        raise UserError(
            f"wanted a workload that learns from images, got {asked.workload!r}; there are "
            f"{', '.join(able)}"
        )
    if asked.mode not in DATA_MODES:
        raise UserError(
            f"no data mode {asked.mode[:100]!r}; modes are {', '.join(DATA_MODES)}; "
            "choose one with --data-mode"
        )
    given = (asked.epochs, asked.batch, asked.starts, asked.workers or 1)
    for (option, most), value in zip(_LIMITS.items(), given, strict=True):
        if not 1 <= value <= most:
            raise UserError(f"wanted {option} from 1 to {most}, got {value}; mend it")
    if not _SMALLEST_SIDE <= asked.side <= 1024 or asked.side % _SMALLEST_SIDE:
        raise UserError(
            f"wanted --side from {_SMALLEST_SIDE} to 1024 in steps of {_SMALLEST_SIDE}, which all "
            f"strides divide, got {asked.side}; write for example --side 224"
        )
    return find_case(asked.workload, Wanted(use_case="train", batch=32, precision=asked.precision))


def _order_dataset(asked: Training, folder: ImageFolder) -> DatasetOrder:
    if folder.num_train < asked.batch:
        raise UserError(
            f"wanted a batch of {asked.batch} images or more in train/, got {folder.num_train}; "
            "choose a smaller --batch-size"
        )
    if folder.num_val == 0:
        raise UserError("wanted images in val/ that can be decoded, got none; add some")
    mode: DataMode = next(each for each in DATA_MODES if each == asked.mode)
    return DatasetOrder(
        name=folder.name,
        listing=str(folder.listing),
        sha256=folder.sha256,
        num_classes=folder.num_classes,
        num_train=folder.num_train,
        num_val=folder.num_val,
        batch=asked.batch,
        side=asked.side,
        mode=mode,
        producer=sys.executable,
        workers=asked.workers or usable_cpus(),
        batch_timeout_s=_BATCH_S,
    )
