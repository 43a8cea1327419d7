"""The command `deadheat detect`: change points in your own nightly series."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.verdict.history.detect import detect_shifts
from benchcore.verdict.history.modes import describe_modes
from benchcore.verdict.history.thresholds import SMALLEST_SHIFT
from flows.cli import options
from flows.cli.measurement_files import read_history
from flows.cli.printing import OUT, print_rows
from flows.cli.standalone import answer_files


def detect(
    path: Annotated[Path, typer.Argument(help="A CSV file, or a folder of them.")],
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

    The file is CSV with a column value, one row per night, and optionally a column time. Exit code
    2 if a file can't be read.
    """
    answer_files(path, ".csv", partial(_answer, smallest), _print, as_json)


def _answer(smallest: float, file: Path) -> dict[str, Any]:
    """The shifts and suspicions of one file; `unknown` is why none could be judged."""
    history = read_history(file)
    found = detect_shifts(history.values, history.nights, smallest)
    shifts = [
        {
            "index": shift.index,
            "before": shift.before,
            "after": shift.after,
            "ratio": shift.ratio,
            "ci": [shift.low, shift.high],
        }
        for shift in found.shifts
    ]
    suspicions = [
        {"index": each.index, "ratio": each.ratio, "reason": each.reason} for each in found.edges
    ]
    answer: dict[str, Any] = {"shifts": shifts, "suspicions": suspicions}
    if found.drift is not None:
        answer["drift"] = found.drift
    if found.modes is not None:
        more = {"ratio": found.modes.ratio, "words": describe_modes(found.modes)}
        answer["modes"] = {**dataclasses.asdict(found.modes), **more}
    return {**answer, "unknown": found.unknown} if found.unknown else answer


def _print(answers: dict[str, dict[str, Any]]) -> None:
    rows = [
        {
            "file": name,
            "what": "shift" if "ci" in each else "suspicion",
            **each,
            "ratio": f"{each['ratio']:.4f}",
            "ci": " to ".join(f"{end:.4f}" for end in each["ci"]) if "ci" in each else None,
        }
        for name, answered in answers.items()
        for each in answered["shifts"] + answered["suspicions"]
    ]
    if rows:
        columns = ("file", "what", "index", "before", "after", "ratio", "ci", "reason")
        print_rows(rows, columns, title="What changed; index = the first row at the new level")
    for name, answered in answers.items():
        if "unknown" in answered:
            OUT.print(f"{name}: unknown: {answered['unknown']}", markup=False, soft_wrap=True)
        elif not answered["shifts"] and not answered["suspicions"] and len(answers) == 1:
            OUT.print(f"{name}: no shift", markup=False, soft_wrap=True)
        if not math.isclose(answered.get("drift", 1.0), 1.0):
            drifted = f"{name}: drifts, {answered['drift']:.3f} times in all"
            OUT.print(drifted, markup=False, soft_wrap=True)
        if "modes" in answered:
            OUT.print(f"{name}: {answered['modes']['words']}", markup=False, soft_wrap=True)
