"""What the commands on anyone's numbers share: one file or a folder, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from benchcore.errors import UserError
from benchcore.measurements import list_files
from flows.printing import complain, print_json


def answer_files(
    path: Path,
    ending: str,
    answer: Callable[[Path], dict[str, Any]],
    print_table: Callable[[dict[str, dict[str, Any]]], None],
    as_json: bool,
) -> None:
    """Answer a file, or each file of a folder under its name.

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
    answers = {file.name: _try(answer, file) for file in files}
    errors = [each["error"] for each in answers.values() if "error" in each]
    if as_json:
        print_json(answers)
    else:
        print_table({name: each for name, each in answers.items() if "error" not in each})
    for error in errors:
        complain(error)
    if errors:
        raise typer.Exit(2)


def _try(answer: Callable[[Path], dict[str, Any]], file: Path) -> dict[str, Any]:
    try:
        return answer(file)
    except UserError as error:
        return {"error": str(error)}
