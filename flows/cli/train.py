"""The command `deadheat train`: epochs on a data set, in both frameworks at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from benchcore.experiments.training import (
    TrainingRequest,
    choose_side,
    conclude_training,
    draft_training,
    find_step,
)
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.planning.datasets.packages import NAMES
from benchcore.planning.matrix import PlannedDuel
from benchcore.planning.requests import USUAL, Placement
from benchcore.protocol import DATA_MODES
from benchcore.state import open_state
from dashboards.listings.epochs import list_epochs
from dashboards.listings.seeds import SEED_COLUMNS, format_accuracy, format_time, list_seeds
from flows.cli import options
from flows.cli.compare import print_comparison
from flows.cli.in_process import measure_plan
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_json, print_line, print_rows, report_line

_COLUMNS = (
    *("contender", "epoch", "time", "rate", "wait", "loss", "accuracy", "validation", "energy"),
    "starts",
)
_DATASET = (
    "Read images (train/CLASS/*.jpg and val/CLASS/*.jpg; IDX or CIFAR-10 files, .npz, .csv), texts "
    "(train/CLASS/*.txt, CLASS/*.txt, *.txt) or a graph (.npz, Planetoid's files), as the workload "
    f"takes. Or install one: {', '.join(NAMES)}."
)
_PIXELS = "Crop images to this width and height (default 224, or what the workload takes)."
_MODES = f"Choose the data path: {', '.join(DATA_MODES)}."
_TARGET = (
    "Find how long each side trains until this accuracy (0.9 is 90 %), and whether both sides end "
    "with equal accuracies."
)
_STARTS = (
    "Train from scratch this many times (default 3; with --target-accuracy 5, each with its own "
    "seed)."
)
_WORKERS = "Decode images with this many threads (default: one per CPU)."


@expand_groups
def train(
    workload: Annotated[
        str,
        options.argument("WORKLOAD", "Name of a workload such as resnet50 or small_lm."),
    ],
    dataset: Annotated[Path, option("--dataset", "PATH", _DATASET)],
    a: options.SideA,
    b: options.SideB,
    a_set: options.SetA = None,
    b_set: options.SetB = None,
    epochs: Annotated[int, option("--epochs", "COUNT", "Train this many epochs per start.")] = 2,
    batch: Annotated[
        int,
        typer.Option(
            "--batch-size", "--batch", metavar="EXAMPLES", help="Train on this many per step."
        ),
    ] = 32,
    pixels: Annotated[int | None, option("--pixels", "COUNT", _PIXELS)] = None,
    data_mode: Annotated[str, option("--data-mode", "NAME", _MODES)] = "end-to-end",
    precision: Annotated[str, option("--precision", "NAME", "Train in this precision.")] = (
        "fp32_ieee"
    ),
    checkpoint: options.Checkpoint = None,
    target: Annotated[
        float | None, option("--target-accuracy", "RATIO", _TARGET, min=0.01, max=1.0)
    ] = None,
    starts: Annotated[
        int | None, typer.Option("--starts", "--seeds", metavar="COUNT", help=_STARTS)
    ] = None,
    workers: Annotated[int | None, option("--workers", "COUNT", _WORKERS)] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that can't be decoded.")
    ] = False,
    device: options.Device = "cpu",
    ceilings: options.Ceilings = True,
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Train on a data set on both sides, and compare their epochs.

    Prints time, waiting for data, accuracy and energy of every epoch. Exit code 1 if a side failed.
    """
    request = TrainingRequest(
        workload=workload,
        dataset=dataset,
        epochs=epochs,
        batch=batch,
        side=choose_side(workload, pixels),
        mode=data_mode,
        precision=precision,
        a=(a, *(a_set or ())),
        b=(b, *(b_set or ())),
        starts=starts,
        target=target,
        device=device,
        workers=workers,
        skip_broken=skip_broken,
        ceilings=ceilings,
    )
    opened = open_state(state)
    if checkpoint is not None:
        sha256 = take_checkpoint(checkpoint, workload, [find_step(request)], opened)
        request = dataclasses.replace(request, checkpoint=sha256)
    drafted = draft_training(request, opened, placement, report_line)
    outcome = measure_plan(drafted, opened, placement.pool)
    found = conclude_training(drafted, opened, outcome["ratios"])
    if as_json:
        print_json({key: outcome[key] for key in ("campaign", "dashboard", "failures")} | found)
    else:
        print_rows(list_epochs(found["epochs"]), _COLUMNS, title=_title(drafted.duels[0]))
        print_comparison(found, outcome)
        if found["to_target"] is not None:
            _print_seeds(found["to_target"])
    if outcome["failures"]:
        raise typer.Exit(1)


def _print_seeds(found: Mapping[str, Any]) -> None:
    title = f"Training to an accuracy of {100 * found['target']:g} %, by seed"
    print_rows(list_seeds(found), SEED_COLUMNS, title=title)
    print_line(format_time(found, "a", "b"))
    print_line(format_accuracy(found, "a", "b"))


def _title(duel: PlannedDuel) -> str:
    """The table's title; the folder's name is whatever its owner called it."""
    given = duel.dataset
    assert given is not None
    what, of = ("examples", "") if given.side is None else ("images", f" at {given.side} pixels")
    return escape(
        f"{duel.workload} on {given.name!r}, {given.num_train} {what} of {given.num_classes} "
        f"classes, {given.batch} a step{of}, {given.mode}; rate: {what} a second"
    )
