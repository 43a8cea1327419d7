"""What the commands on anyone's numbers share: one file or a folder, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import typer

from benchcore.cell.measure.host import usable_cpus
from benchcore.errors import UserError
from flows.cli.measurement_files import list_files
from flows.cli.printing import complain, print_json

_ENOUGH_TO_SHARE = 500
"""Files; fewer are answered before another process has started."""


def answer_files(
    path: Path,
    ending: str,
    answer: Callable[[Path], dict[str, Any]],
    print_table: Callable[[dict[str, dict[str, Any]]], None],
    as_json: bool,
) -> None:
    """Answer a file, or each file of a folder under its name; many are answered side by side, so
    `answer` has to be picklable.

    In a folder, a file that can't be read has its `error` instead, and the exit code is 2 in the
    end: the others are answered all the same. Raises UserError for a single file.
    """
    files = list_files(path, ending)
    if not path.is_dir():
        answered = answer(path)
        if as_json:
            print_json(answered)
        else:
            print_table({path.name: answered})
        return
    answers = _answer_all(answer, files)
    errors = [each["error"] for each in answers.values() if "error" in each]
    if as_json:
        print_json(answers)
    else:
        print_table({name: each for name, each in answers.items() if "error" not in each})
    for error in errors:
        complain(error)
    if errors:
        raise typer.Exit(2)


def _answer_all(
    answer: Callable[[Path], dict[str, Any]], files: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    names = [file.name for file in files]
    cpus = usable_cpus()
    if len(files) < _ENOUGH_TO_SHARE or cpus == 1:
        return dict(zip(names, map(partial(_try, answer), files), strict=True))
    with ProcessPoolExecutor(cpus, mp_context=get_context("spawn")) as pool:
        answered = pool.map(partial(_try, answer), files, chunksize=100)
        return dict(zip(names, answered, strict=True))


def _try(answer: Callable[[Path], dict[str, Any]], file: Path) -> dict[str, Any]:
    try:
        return answer(file)
    except UserError as error:
        return {"error": str(error)}
