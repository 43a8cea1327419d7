"""The command `deadheat judge`: a verdict on your own paired timings."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchcore.errors import UserError
from benchcore.verdict.allocations import judge_allocations, locate
from benchcore.verdict.moderation import fit_spread
from benchcore.verdict.samples import EQUIVALENCE_BOUND, SpreadPrior
from flows.cli import options
from flows.cli.measurement_files import list_files, read_allocations
from flows.cli.printing import print_rows
from flows.cli.standalone import answer_files


def judge(
    path: Annotated[Path, options.argument("FILE|FOLDER", "A JSON file, or a folder of them.")],
    bound: options.Bound = EQUIVALENCE_BOUND,
    as_json: options.Json = False,
) -> None:
    """Test whether b is slower than a from paired timings. Each allocation is one sample.

    The file: {"allocations": [{"pairs": [[seconds_a, seconds_b], ...]}, ...]}. Files of a folder
    are cases of one machine: their spreads inform each other. Exit code 2 if a file can't be read.
    """
    prior = _learn_spread(path) if path.is_dir() else None
    answer_files(path, ".json", partial(_answer, bound, prior), _print, as_json)


def _learn_spread(folder: Path) -> SpreadPrior | None:
    """What the cases of a folder show about their machine; files that can't be read show nothing,
    and are reported when they are judged."""
    cases: list[np.ndarray] = []
    for file in list_files(folder, ".json"):
        with suppress(UserError):
            allocations = [pairs for pairs in read_allocations(file) if len(pairs)]
            cases += [locate(allocations)] if len(allocations) > 1 else []
    return fit_spread(cases)


def _answer(bound: float, prior: SpreadPrior | None, file: Path) -> dict[str, Any]:
    found = judge_allocations(read_allocations(file), bound, prior=prior)
    ci = None if found.low is None else [found.low, found.high]
    answer = {"verdict": found.verdict, "log_ratio": found.log_ratio, "ci": ci, "p": found.p}
    return {**answer, "reason": found.reason} if found.verdict == "unknown" else answer


def _print(answers: dict[str, dict[str, Any]]) -> None:
    columns = ("file", "verdict", "log_ratio", "ci", "p", "reason")
    rows = [{"file": name, **answered} for name, answered in answers.items()]
    print_rows(rows, columns, title="log(t_b / t_a): above 0 = a is faster")
