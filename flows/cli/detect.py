"""The command `deadheat detect`: change points in your own nightly series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.experiments.user_files import search_files
from benchcore.verdict.history.thresholds import SMALLEST_SHIFT
from flows.cli import options
from flows.cli.printing import print_findings, print_line, print_rows

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
    print_findings(search_files(path, smallest), _print, alone=not path.is_dir(), as_json=as_json)


def _print(findings: dict[str, dict[str, Any]]) -> None:
    rows = [
        {
            "file": name,
            "what": "shift" if "ci" in each else "suspicion",
            **each,
            **{key: f"{each[key]:.4f}" for key in _CHANGES if key in each},
            "ci": " to ".join(f"{end:.4f}" for end in each["ci"]) if "ci" in each else None,
        }
        for name, found in findings.items()
        for each in found["shifts"] + found["suspicions"]
    ]
    if rows:
        shown = [key for key in _CHANGES if any(key in row for row in rows)]
        columns = ("file", "what", "index", "before", "after", *shown, "ci", "reason")
        print_rows(rows, columns, title="What changed; index = the first row at the new level")
    for name, found in findings.items():
        for note in _list_notes(found, alone=len(findings) == 1):
            print_line(f"{name}: {note}")


def _list_notes(found: Mapping[str, Any], *, alone: bool) -> list[str]:
    notes: list[str] = []
    if "unknown" in found:
        notes.append(f"unknown: {found['unknown']}")
    elif not found["shifts"] and not found["suspicions"] and alone:
        notes.append("no shift")
    if "scale" in found:
        notes.append("values at or below zero: changes are differences, not ratios")
        if "drift" in found:
            notes.append(f"drift: {found['drift']:.3g} in total")
    elif not math.isclose(found.get("drift", 1.0), 1.0):
        notes.append(f"drift: {found['drift']:.3f}x in total")
    if "nights with several runs" in found:
        num = found["nights with several runs"]
        notes.append(f"{num} nights have several runs; each counts by their median")
    if "modes" in found:
        notes.append(found["modes"]["summary"])
    return notes
