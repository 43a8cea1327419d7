"""The command `deadheat judge`: a verdict on your own paired timings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from flows.cli.measurement_files import read_allocations
from flows.cli.options import BoundOption, JsonOption
from flows.cli.printing import print_rows
from flows.cli.standalone import answer_files


def judge(
    path: Annotated[Path, typer.Argument(help="A JSON file, or a folder of them.")],
    bound: BoundOption = EQUIVALENCE_BOUND,
    as_json: JsonOption = False,
) -> None:
    """Test whether b is slower than a from paired timings. Each allocation is one sample.

    The file: {"allocations": [{"pairs": [[seconds_a, seconds_b], ...]}, ...]}. Exit code 2 if a
    file can't be read.
    """
    answer_files(path, ".json", partial(_answer, bound), _print, as_json)


def _answer(bound: float, file: Path) -> dict[str, Any]:
    found = judge_allocations(read_allocations(file), bound)
    ci = None if found.low is None else [found.low, found.high]
    answer = {"verdict": found.verdict, "log_ratio": found.log_ratio, "ci": ci, "p": found.p}
    return {**answer, "reason": found.reason} if found.verdict == "unknown" else answer


def _print(answers: dict[str, dict[str, Any]]) -> None:
    columns = ("file", "verdict", "log_ratio", "ci", "p", "reason")
    rows = [{"file": name, **answered} for name, answered in answers.items()]
    print_rows(rows, columns, title="log(t_b / t_a): above 0 = a is faster")
