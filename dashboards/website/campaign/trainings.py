"""The sections of a campaign's page that show training on data sets: epochs, and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchcore.names import FRAMEWORK_NAMES
from dashboards.formatting import case_label, contender_label
from dashboards.listings.epochs import list_epochs
from dashboards.listings.seeds import SIDES, format_accuracy, format_time, list_seeds
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.gather import Campaign


def list_training_sections(campaign: Campaign) -> Iterator[Block]:
    """The epochs of every training, and the seeds of those to a target accuracy."""
    rows = list_epochs(campaign.rows("epochs"))
    if rows:
        heads = ("case", "contender", "epoch", "starts", "time", "rate", "wait", "loss", "accuracy")
        columns = [column(each, each.capitalize()) for each in (*heads, "validation", "energy")]
        names = dict.fromkeys(row["dataset"] for row in rows)
        caption = f"Epochs of training on {', '.join(names)}."
        shown = blocks.table("epochs", caption, columns, rows)
        yield blocks.section("Training on a data set", [shown], id="epochs")
    if trainings := campaign.rows("trainings"):
        shown = [block for each in trainings for block in _show_seeds(each)]
        yield blocks.section("Training to an accuracy", shown, id="seeds")


def _show_seeds(found: Mapping[str, Any]) -> Iterator[Block | None]:
    names = {side: _name(found[side], side) for side in SIDES}
    yield blocks.text(format_time(found, **names))
    yield blocks.text(format_accuracy(found, **names))
    columns = [
        column("seed", "Seed", help="It decides the initial weights and the order of the data."),
        *(
            column(f"{key}_{side}", f"{head}, {name}", help=about, align="number")
            for key, head, about in _HEADS
            for side, name in _shorten(found, names).items()
        ),
    ]
    caption = (
        f"{case_label(found)} on {found['dataset']}, trained until {100 * found['target']:g} % in "
        "validation. Both sides share a seed."
    )
    rows = [
        {key: blocks.number(text, _value(each, key)) for key, text in shown.items()}
        for each, shown in zip(found["seeds"], list_seeds(found), strict=True)
    ]
    yield blocks.table(f"seeds-{found['duel_run']}", caption, columns, rows)


_HEADS = (
    ("time", "Time", "Of training until the target, without validation."),
    ("accuracy", "Accuracy", "In validation after the last epoch."),
)
_VALUES = {"time": "seconds", "accuracy": "accuracy"}


def _value(seed: Mapping[str, Any], column: str) -> float | None:
    """What a cell sorts and downloads as."""
    key, _, side = column.partition("_")
    if not side:
        return seed[key]
    return None if seed[side] is None else seed[side][_VALUES[key]]


def _name(side: Mapping[str, Any] | None, letter: str) -> str:
    """A side that did not finish has none but its letter."""
    keys = ("framework", "version", "arm")
    return letter if side is None else contender_label(*(side[key] for key in keys))


def _shorten(found: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, str]:
    """The frameworks alone, where these differ."""
    kinds = {side: found[side]["framework"] for side in SIDES if found[side] is not None}
    if len(set(kinds.values())) < len(SIDES):
        return names
    return {side: FRAMEWORK_NAMES[kind] for side, kind in kinds.items()}
