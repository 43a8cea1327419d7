"""The command `deadheat judge`: a verdict on your own paired timings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from benchcore.experiments.user_files import judge_files
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from flows.cli import options
from flows.cli.printing import print_findings, print_rows


def judge(
    path: Annotated[Path, options.argument("FILE|FOLDER", "A JSON file, or a folder of them.")],
    bound: options.Bound = EQUIVALENCE_BOUND,
    as_json: options.Json = False,
) -> None:
    """Test whether b is slower than a from paired timings. Each allocation is one sample.

    The file: {"allocations": [{"pairs": [[seconds_a, seconds_b], ...]}, ...]}. Files of a folder
    are cases of one machine: their spreads inform each other. With "scale": "linear" beside the
    list, values may be at or below zero, and b - a is judged. Exit code 2 if a file can't be read.
    """
    print_findings(judge_files(path, bound), _print, alone=not path.is_dir(), as_json=as_json)


def _print(findings: dict[str, dict[str, Any]]) -> None:
    linear = ["difference"] if any("difference" in each for each in findings.values()) else []
    columns = ("file", "verdict", "log_ratio", *linear, "ci", "p", "reason")
    rows = [{"file": name, **found} for name, found in findings.items()]
    print_rows(rows, columns, title="log(t_b / t_a): above 0 = a is faster")
