"""A duel of training on a data set: its plan, and what it found."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.measure.host import usable_cpus
from benchcore.errors import UserError
from benchcore.experiments.compare import (
    choose_case,
    conclude_comparison,
    list_plain_arms,
)
from benchcore.planning import matrix
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.datasets.graphs import read_graph
from benchcore.planning.datasets.image_arrays import holds_arrays, read_image_arrays
from benchcore.planning.datasets.image_folder import read_image_folder
from benchcore.planning.datasets.packages import NAMES, find_named
from benchcore.planning.datasets.texts import read_texts
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import USUAL, CaseFilter, Placement, parse_arm
from benchcore.protocol import DATA_MODES, DataMode, DatasetOrder, DuelLimits
from benchcore.running.plans import draft_named
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.epochs import list_epochs
from benchcore.store.reports.seeds import list_trainings
from benchcore.verdict.duel.seeds import FEWEST_SEEDS
from benchcore.workloads.contract import (
    TrainedData,
    TrainedGraphs,
    TrainedImages,
    TrainedTexts,
    size_case,
)

_PREPARE_S = 1800.0
_BATCH_S = 120.0
"""Seconds without a batch after which the loader counts as hanging."""
_SMALLEST_SIDE = 32
_USUAL_SIDE = 224
_STEP = CaseFilter(use_case="train", batch=32)
_STARTS = 3
"""Starts of a training without a target."""
_LIMITS = {"--epochs": 1000, "--batch-size": 4096, "--starts": 100, "--workers": 256}


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A user's request: a and b are a version request and its settings each."""

    workload: str
    dataset: Path
    epochs: int
    batch: int
    side: int | None
    """Height and width of images, in pixels; None = not images."""
    mode: str
    precision: str
    a: Sequence[str]
    b: Sequence[str]
    starts: int | None = None
    """None = 3, or 5 seeds with a target."""
    target: float | None = None
    """Accuracy in validation, 0 to 1. With it, each start has its own seed."""
    device: str = "cpu"
    workers: int | None = None
    """Decoding threads; None = as many as there are CPUs."""
    skip_broken: bool = False
    checkpoint: str | None = None
    """SHA-256 of the file with the initial weights, from `take_checkpoint`."""
    ceilings: bool = True
    """Whether the device's ceilings are measured too, so that physics can be judged."""


def draft_training(
    request: TrainingRequest,
    state: State,
    placement: Placement = USUAL,
    report: Callable[[str], None] = lambda text: None,
) -> Plan:
    """The plan of one duel whose rounds are epochs, and of the device's ceilings. Raises
    UserError."""
    case, starts = _check(request), _count_starts(request)
    arms = tuple(parse_arm(",".join(each)) for each in (request.a, request.b))
    wanted = _find_data(request.workload, case)
    found = _read_dataset(request, wanted, state, report)
    dataset = _order_dataset(request, wanted, found)
    match = Match(
        workload=request.workload,
        case=case,
        arms=arms,
        expected_s=600.0,
        checkpoint=request.checkpoint,
    )
    plain = list_plain_arms(request.a[0], request.b[0]) if request.ceilings else ()
    profile = Profile(
        name="train",
        matches=(match, *list_sentinels(request.device, request.precision, plain, DuelLimits())),
        limits=DuelLimits(
            starts=starts,
            # Seeds are independent samples only if none reuses another's compilation.
            compilations=DuelLimits.compilations if request.target is None else starts,
            rounds=request.epochs,
            prepare_timeout_s=_PREPARE_S,
            block_timeout_s=3 * _BATCH_S,
        ),
        device=request.device,
    )
    plan = draft_named(profile, f"train-{request.workload}", placement)
    return matrix.train_on(plan, dataset)


def _read_dataset(
    request: TrainingRequest, wanted: TrainedData, state: State, report: Callable[[str], None]
) -> Dataset:
    """What lies at the path, or the data set of a package, if nothing does and that is its name."""
    path, cache, name = request.dataset, state.datasets, None
    if str(path) in NAMES and not path.exists():
        path, name = find_named(str(path), cache, report)
    if isinstance(wanted, TrainedTexts):
        found = read_texts(path, cache, wanted, report)
    elif isinstance(wanted, TrainedGraphs):
        found = read_graph(path, cache, wanted, report)
    elif holds_arrays(path):
        found = read_image_arrays(path, cache, report)
    else:
        found = read_image_folder(path, cache, skip_broken=request.skip_broken, report=report)
    return found if name is None else dataclasses.replace(found, name=name)


def _find_data(workload: str, case: str) -> TrainedData:
    """The data sets that a case of a workload that can train on some takes."""
    spec = load_spec(workload)
    assert spec.trains_on is not None, "checked before"
    return spec.trains_on(spec.cases[case])


def conclude_training(
    plan: Plan, state: State, ratios: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a measured training found, as `conclude_comparison` describes it, its data set, its
    epochs, and what its seeds showed if it had a target (`list_trainings`; None = no target, or no
    side finished). An epoch has no profile, so nothing shows where its time went."""
    duel = plan.duels[0]
    dataset = duel.dataset
    assert dataset is not None
    keys = ("name", "sha256", "num_classes", "num_train", "num_val", "mode", "workers")
    found = conclude_comparison(plan.campaign, state, ratios)
    engine = open_database(state.database_url)
    return {
        **found,
        "why": [],
        "dataset": {key: getattr(dataset, key) for key in keys},
        "epochs": list_epochs(engine, plan.campaign),
        "to_target": next(iter(list_trainings(engine, plan.campaign, ratios)), None),
    }


def choose_side(workload: str, side: int | None) -> int | None:
    """The width and height of images: the requested one, or the workload's own, or the usual one.
    None for a workload that takes no images. Raises UserError if one was requested for it."""
    if load_spec(workload).trains_on is None:
        return side  # refused later, by name
    wanted = _find_data(workload, choose_case(workload, _STEP))
    if isinstance(wanted, TrainedImages):
        return side or wanted.side or _USUAL_SIDE
    if side is not None:
        raise UserError(
            f"wanted no --pixels for {workload!r}, which takes no images, got {side}; leave it out"
        )
    return None


def find_step(request: TrainingRequest) -> Any:
    """The case of a single step, with the requested batch and side. Raises UserError."""
    case = load_spec(request.workload).cases[_check(request)]
    return size_case(case, request.batch, request.side)


def _check(request: TrainingRequest) -> str:
    """The case of a single step that an epoch is made of. Raises UserError."""
    if load_spec(request.workload).trains_on is None:
        able = [name for name in list_workloads() if load_spec(name).trains_on is not None]
        raise UserError(
            f"wanted a workload that can train on a data set, got {request.workload!r}; choose "
            f"one of {', '.join(able)}"
        )
    if request.mode not in DATA_MODES:
        raise UserError(
            f"no data mode {request.mode[:100]!r}; modes are {', '.join(DATA_MODES)}; "
            "choose one with --data-mode"
        )
    given = (request.epochs, request.batch, _count_starts(request), request.workers or 1)
    for (option, most), value in zip(_LIMITS.items(), given, strict=True):
        if not 1 <= value <= most:
            raise UserError(f"wanted {option} from 1 to {most}, got {value}; change it")
    name = choose_case(request.workload, dataclasses.replace(_STEP, precision=request.precision))
    wanted = _find_data(request.workload, name)
    if isinstance(wanted, TrainedImages) and request.side is not None:
        _check_side(request.workload, request.side, wanted.side)
    return name


def _count_starts(request: TrainingRequest) -> int:
    if request.starts is not None:
        return request.starts
    return _STARTS if request.target is None else FEWEST_SEEDS


def _check_side(workload: str, side: int, only: int | None) -> None:
    if only is not None and side != only:
        raise UserError(
            f"wanted --pixels {only}, all that {workload!r} takes, got {side}; leave it out"
        )
    if only is None and (not _SMALLEST_SIDE <= side <= 1024 or side % _SMALLEST_SIDE):
        raise UserError(
            f"wanted --pixels from {_SMALLEST_SIDE} to 1024 in multiples of {_SMALLEST_SIDE}, the "
            f"product of all strides, got {side}; write for example --pixels 224"
        )


def _order_dataset(request: TrainingRequest, wanted: TrainedData, found: Dataset) -> DatasetOrder:
    if found.num_train < request.batch:
        raise UserError(
            f"wanted at least one batch of {request.batch} examples to train on, got "
            f"{found.num_train}; choose a smaller --batch-size"
        )
    most = wanted.classes
    if most is not None and found.num_classes > most:
        raise UserError(
            f"wanted at most {most} classes, as many as {request.workload!r} has logits, "
            f"got {found.num_classes}; use fewer classes, or choose another workload"
        )
    if found.side not in (None, request.side):
        raise UserError(
            f"wanted arrays of images of {request.side} pixels, as arrays are not resized, got "
            f"{found.side}; choose another workload, or --pixels {found.side}"
        )
    if found.num_val == 0:
        raise UserError("wanted images in val/ that can be decoded, got none; add some")
    mode: DataMode = next(each for each in DATA_MODES if each == request.mode)
    return DatasetOrder(
        name=found.name,
        listing=str(found.listing),
        sha256=found.sha256,
        num_classes=found.num_classes,
        num_train=found.num_train,
        num_val=found.num_val,
        batch=request.batch,
        side=request.side,
        rows=found.list_rows(request.side),
        mode=mode,
        loader_python=sys.executable,
        workers=request.workers or usable_cpus(),
        batch_timeout_s=_BATCH_S,
        target_accuracy=request.target,
    )
