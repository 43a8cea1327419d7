"""Training to an accuracy, formatted for the page and the console: its seeds and what they show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from benchcore.names import format_percent
from dashboards.formatting import describe_verdict, format_count, format_seconds

SIDES = ("a", "b")
_OF_SIDE = ("time", "accuracy")
SEED_COLUMNS = ("seed", *(f"{key}_{side}" for key in _OF_SIDE for side in SIDES))


def list_seeds(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per seed, with the columns of `SEED_COLUMNS`, from a row of
    `benchcore.store.reports.seeds.list_trainings`."""
    return [
        {"seed": str(each["seed"])}
        | {f"{key}_{side}": text for side in SIDES for key, text in _describe(each[side]).items()}
        for each in found["seeds"]
    ]


def _describe(training: Mapping[str, Any] | None) -> dict[str, str]:
    if training is None:
        return dict.fromkeys(_OF_SIDE, "did not finish")
    seconds = training["seconds"]
    epochs = format_count(training["num_epochs"], "epoch")
    disturbed = ", disturbed" if training["disturbed"] else ""
    time = "never" if seconds is None else format_seconds(seconds)
    return {
        "time": f"{time} ({epochs}{disturbed})",
        "accuracy": format_percent(training["accuracy"], 1),
    }


def format_time(found: Mapping[str, Any], a: str, b: str) -> str:
    """How long the sides `a` and `b` trained until the accuracy, and which was faster."""
    ratio = found["time"]
    sides = "; ".join(
        f"{name} {_side(found[side])}" for side, name in zip(SIDES, (a, b), strict=True)
    )
    keys = ("ratio", "low", "high")
    middle, low, high = (math.log(ratio[key]) if ratio[key] else math.nan for key in keys)
    judged = describe_verdict(a, b, ratio["verdict"], (middle, low, high), why=ratio["reason"])
    over = "" if ratio["verdict"] == "unknown" else f" (over {ratio['num_seeds']} seeds)"
    return f"Until {100 * found['target']:g} %: {sides}. {judged[0].upper()}{judged[1:]}{over}."


def _side(side: Mapping[str, Any] | None) -> str:
    """`2.10 s (1.95 s to 2.26 s, over 5 seeds)`, or why there is no such time."""
    if side is None:
        return "did not finish"
    if side["seconds"] is None:
        return side["reason"]
    low, high = (format_seconds(side[key]) for key in ("low", "high"))
    quiet = side["num_seeds"] - side["num_disturbed"]
    over = f"{quiet} undisturbed of {side['num_seeds']}" if side["num_disturbed"] else f"{quiet}"
    return f"{format_seconds(side['seconds'])} ({low} to {high}, over {over} seeds)"


def format_accuracy(found: Mapping[str, Any], a: str, b: str) -> str:
    """The last accuracies of the sides `a` and `b`, and whether they have one distribution."""
    test = found["accuracy"]
    margin = f"{100 * test['margin']:g} percentage point{'s' if test['margin'] != 0.01 else ''}"
    verdicts = {
        "equal": f"equal within {margin}",
        "different": "different",
        "not shown": f"not shown to be equal within {margin}",
    }
    judged = f"Final accuracies are {verdicts[test['verdict']]}: "
    if test["difference"] is None:
        return f"{judged}{test['reason']}."
    points = [f"{100 * test[key]:+.2f}" for key in ("difference", "low", "high")]
    of_a, of_b = (format_percent(test[side], 1) for side in ("a", "b"))
    return (
        f"{judged}{a} {of_a}, {b} {of_b} on average over "
        f"{test['num_seeds']} seeds; difference {points[0]} points ({points[1]} to {points[2]}); "
        f"permutation test p = {test['p']:.2g}; {test['reason']}."
    )
