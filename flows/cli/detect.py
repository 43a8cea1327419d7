"""The command `deadheat detect`: change points in your own nightly series."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchcore.verdict.history.detect import Detection, detect_shifts
from benchcore.verdict.history.linear import detect_linear_shifts
from benchcore.verdict.history.modes import describe_modes
from benchcore.verdict.history.thresholds import SMALLEST_SHIFT
from flows.cli import options
from flows.cli.measurement_files import read_history
from flows.cli.printing import OUT, print_rows
from flows.cli.standalone import answer_files

_CHANGES = ("ratio", "difference")


def detect(
    path: Annotated[Path, options.argument("FILE|FOLDER", "A CSV file, or a folder of them.")],
    smallest: Annotated[
        float,
        typer.Option(
            "--smallest",
            metavar="RATIO",
            min=0.0,
            max=1.0,
            help="Ignore changes below this share: 0.01 is 1 %.",
        ),
    ] = SMALLEST_SHIFT,
    as_json: options.Json = False,
) -> None:
    """Detect change points in a nightly series. Outliers are reported separately.

    The file is CSV with a column value, one row per night, and optionally a column time; rows of
    one night count by their median. Values at or below zero are compared on a linear scale. Exit
    code 2 if a file can't be read.
    """
    answer_files(path, ".csv", partial(_answer, smallest), _print, as_json)


def _answer(smallest: float, file: Path) -> dict[str, Any]:
    """The shifts and suspicions of one file; `unknown` is why none could be judged."""
    history = read_history(file)
    linear = bool(np.any(history.values <= 0))
    detect_changes = detect_linear_shifts if linear else detect_shifts
    found = detect_changes(history.values, history.nights, smallest)
    change = "difference" if linear else "ratio"
    answer: dict[str, Any] = {
        "shifts": [
            {
                "index": int(history.rows[shift.index]),
                "before": shift.before,
                "after": shift.after,
                change: getattr(shift, change),
                "ci": [shift.low, shift.high],
            }
            for shift in found.shifts
        ],
        "suspicions": [
            {
                "index": int(history.rows[each.index]),
                change: getattr(each, change),
                "reason": each.reason,
            }
            for each in found.edges
        ],
    }
    if history.num_repeated:
        answer["nights with several runs"] = history.num_repeated
    if found.drift is not None:
        answer["drift"] = found.drift
    if isinstance(found, Detection) and found.modes is not None:
        more = {"ratio": found.modes.ratio, "words": describe_modes(found.modes)}
        answer["modes"] = {**dataclasses.asdict(found.modes), **more}
    if linear:
        answer["scale"] = "linear"
    return {**answer, "unknown": found.unknown} if found.unknown else answer


def _print(answers: dict[str, dict[str, Any]]) -> None:
    rows = [
        {
            "file": name,
            "what": "shift" if "ci" in each else "suspicion",
            **each,
            **{key: f"{each[key]:.4f}" for key in _CHANGES if key in each},
            "ci": " to ".join(f"{end:.4f}" for end in each["ci"]) if "ci" in each else None,
        }
        for name, answered in answers.items()
        for each in answered["shifts"] + answered["suspicions"]
    ]
    if rows:
        shown = [key for key in _CHANGES if any(key in row for row in rows)]
        columns = ("file", "what", "index", "before", "after", *shown, "ci", "reason")
        print_rows(rows, columns, title="What changed; index = the first row at the new level")
    for name, answered in answers.items():
        for note in _list_notes(answered, alone=len(answers) == 1):
            OUT.print(f"{name}: {note}", markup=False, soft_wrap=True)


def _list_notes(answered: Mapping[str, Any], *, alone: bool) -> list[str]:
    notes: list[str] = []
    if "unknown" in answered:
        notes.append(f"unknown: {answered['unknown']}")
    elif not answered["shifts"] and not answered["suspicions"] and alone:
        notes.append("no shift")
    if "scale" in answered:
        notes.append("values at or below zero: changes are differences, not ratios")
        if "drift" in answered:
            notes.append(f"drifts, by {answered['drift']:.3g} in all")
    elif not math.isclose(answered.get("drift", 1.0), 1.0):
        notes.append(f"drifts, {answered['drift']:.3f} times in all")
    if "nights with several runs" in answered:
        num = answered["nights with several runs"]
        notes.append(f"{num} nights have several runs; each counts by their median")
    if "modes" in answered:
        notes.append(answered["modes"]["words"])
    return notes
