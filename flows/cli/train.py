"""The command `deadheat train`: epochs on an image folder, in both frameworks at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from benchcore.experiments.compare import summarise
from benchcore.experiments.training import TrainingRequest, draft_training, find_step
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.planning.matrix import PlannedDuel
from benchcore.protocol import DATA_MODES
from benchcore.running.duel_process import result_path
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.documents import read_document
from benchcore.store.frames.epochs import epoch_frame, list_epochs
from benchcore.store.reports.campaign import list_contenders
from dashboards import epochs as tables
from flows.cli.compare import print_comparison
from flows.cli.in_process import measure_plan
from flows.cli.options import (
    STATE,
    CampaignOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    PoolOption,
    PythonOption,
    SetAOption,
    SetBOption,
    SideAOption,
    SideBOption,
    SiteOption,
    StateOption,
)
from flows.cli.printing import ERR, print_json, print_rows


def train(
    workload: Annotated[str, typer.Argument(help="Name of a vision workload, such as resnet50.")],
    dataset: Annotated[
        Path,
        typer.Option(
            "--dataset", metavar="FOLDER", help="Read train/CLASS/*.jpg and val/CLASS/*.jpg."
        ),
    ],
    a: SideAOption,
    b: SideBOption,
    a_set: SetAOption = None,
    b_set: SetBOption = None,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="COUNT", help="Train this many epochs per start.")
    ] = 2,
    batch: Annotated[
        int,
        typer.Option(
            "--batch-size", "--batch", metavar="IMAGES", help="Train on this many per step."
        ),
    ] = 32,
    side: Annotated[
        int, typer.Option("--side", metavar="PIXELS", help="Crop images to this width and height.")
    ] = 224,
    data_mode: Annotated[
        str,
        typer.Option(
            "--data-mode", metavar="NAME", help=f"Choose the data path: {', '.join(DATA_MODES)}."
        ),
    ] = "end-to-end",
    precision: Annotated[
        str, typer.Option("--precision", metavar="NAME", help="Train in this precision.")
    ] = "fp32_ieee",
    checkpoint: CheckpointOption = None,
    starts: Annotated[
        int, typer.Option("--starts", metavar="COUNT", help="Train from scratch this many times.")
    ] = 3,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="COUNT",
            help="Decode with this many threads (default: one per CPU).",
        ),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that can't be decoded.")
    ] = False,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Train on an image folder on both sides, and compare their epochs.

    Prints time, waiting for data, accuracy and energy of every epoch. Exit code 1 if a side failed.
    """
    asked = TrainingRequest(
        workload=workload,
        dataset=dataset,
        epochs=epochs,
        batch=batch,
        side=side,
        mode=data_mode,
        precision=precision,
        a=(a, *(a_set or ())),
        b=(b, *(b_set or ())),
        starts=starts,
        device=device,
        workers=workers,
        skip_broken=skip_broken,
    )
    opened = open_state(state)
    if checkpoint is not None:
        sha256 = take_checkpoint(checkpoint, workload, [find_step(asked)], opened)
        asked = dataclasses.replace(asked, checkpoint=sha256)
    drafted = draft_training(
        asked,
        opened,
        site=site,
        campaign=campaign,
        python=python,
        report=lambda text: ERR.print(text, markup=False),
    )
    outcome = measure_plan(drafted, opened, pool)

    (duel,) = drafted.duels
    engine = open_database(opened.database_url)
    found = summarise(
        read_document(result_path(opened, drafted.campaign, duel.duel_run)),
        outcome["ratios"],
        list_contenders(engine, drafted.campaign),
    )
    found["why"] = []  # epochs have no profile that shows it
    if as_json:
        kept = {key: outcome[key] for key in ("campaign", "dashboard", "failures")}
        listed = list_epochs(engine, drafted.campaign)
        print_json({**kept, **found, "dataset": _describe(duel), "epochs": listed})
    else:
        rows = tables.list_epochs(epoch_frame(engine, drafted.campaign))
        print_rows(rows, _COLUMNS, title=_name(duel))
        print_comparison(found, outcome)
    if outcome["failures"]:
        raise typer.Exit(1)


_COLUMNS = (
    *("contender", "epoch", "time", "rate", "wait", "loss", "accuracy", "validation", "energy"),
    "starts",
)


def _describe(duel: PlannedDuel) -> dict[str, Any]:
    assert duel.dataset is not None
    kept = ("name", "sha256", "num_classes", "num_train", "num_val", "mode", "workers")
    return {key: getattr(duel.dataset, key) for key in kept}


def _name(duel: PlannedDuel) -> str:
    """The table's title; the folder's name is whatever its owner called it."""
    given = duel.dataset
    assert given is not None
    return escape(
        f"{duel.workload} on {given.name!r}, {given.num_train} images of {given.num_classes} "
        f"classes, {given.batch} a step at {given.side} pixels, {given.mode}; rate: images a second"
    )
