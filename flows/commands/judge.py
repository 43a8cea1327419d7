"""The command `deadheat judge`: a verdict on anyone's paired times."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.measurements import read_allocations
from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.ratios import EQUIVALENCE_BOUND
from flows.commands.options import BoundOption, JsonOption
from flows.commands.standalone import answer_files
from flows.printing import print_rows


def judge(
    path: Annotated[Path, typer.Argument(help="A JSON file, or a folder of them.")],
    bound: BoundOption = EQUIVALENCE_BOUND,
    as_json: JsonOption = False,
) -> None:
    """Say of paired times whether b takes longer than a, with the allocations as samples."""

    answer_files(path, ".json", partial(_answer, bound), _print, as_json)


def _answer(bound: float, file: Path) -> dict[str, Any]:
    found = judge_allocations(read_allocations(file), bound)
    ci = None if found.low is None else [found.low, found.high]
    said = {"verdict": found.verdict, "log_ratio": found.log_ratio, "ci": ci, "p": found.p}
    return {**said, "reason": found.reason} if found.verdict == "unknown" else said


def _print(answers: dict[str, dict[str, Any]]) -> None:
    columns = ("file", "verdict", "log_ratio", "ci", "p", "reason")
    rows = [{"file": name, **answered} for name, answered in answers.items()]
    print_rows(rows, columns, title="log(t_b / t_a): above 0 = a is faster")
