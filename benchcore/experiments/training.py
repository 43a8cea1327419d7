"""A duel of training on an image folder: what a user asks for, as a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchcore.cell.document import size_case
from benchcore.cell.measure.host import usable_cpus
from benchcore.errors import UserError
from benchcore.experiments.compare import CaseFilter, find_case
from benchcore.planning import matrix
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.planning.image_folder import ImageFolder, read_image_folder
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DATA_MODES, DataMode, DatasetOrder, DuelLimits
from benchcore.running.plans import draft_plan
from benchcore.state import State

_PREPARE_S = 1800.0
_BATCH_S = 120.0
"""A producer that gives no batch for so long hangs."""
_SMALLEST_SIDE = 32
_LIMITS = {"--epochs": 1000, "--batch-size": 4096, "--starts": 100, "--workers": 256}


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
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
    asked: TrainingRequest,
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
        limits=DuelLimits(
            starts=asked.starts,
            rounds=asked.epochs,
            prepare_timeout_s=_PREPARE_S,
            block_timeout_s=3 * _BATCH_S,
        ),
        device=asked.device,
    )
    name = campaign or f"train-{asked.workload}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}"
    plan = draft_plan(profile, site=site, campaign=name.replace("_", "-"), python=python)
    return matrix.train_on(plan, dataset)


def find_step(asked: TrainingRequest) -> Any:
    """The case of a single step, of the batch and side asked for. Raises UserError."""
    case = load_spec(asked.workload).cases[_check(asked)]
    return size_case(case, asked.batch, asked.side)


def _check(asked: TrainingRequest) -> str:
    """The case of a single step that an epoch is made of. Raises UserError."""
    if load_spec(asked.workload).make_training_arrays is None:
        able = [
            name for name in list_workloads() if load_spec(name).make_training_arrays is not None
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
    return find_case(
        asked.workload, CaseFilter(use_case="train", batch=32, precision=asked.precision)
    )


def _order_dataset(asked: TrainingRequest, folder: ImageFolder) -> DatasetOrder:
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
        loader_python=sys.executable,
        workers=asked.workers or usable_cpus(),
        batch_timeout_s=_BATCH_S,
    )
