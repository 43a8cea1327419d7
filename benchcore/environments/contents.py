"""The files of an environment: listed with their hashes when it is built, compared before use."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchcore.protocol import write_json

_LIST = "files.json"


def list_files(folder: Path) -> None:
    """Write the list of an environment's files to its folder: size, time of change, SHA-256."""
    found = {name: [*status, _hash(folder / name)] for name, status in _stat_files(folder / "venv")}
    write_json(folder / _LIST, found)


def remove_list(folder: Path) -> None:
    """Remove the list, once the files are gone."""
    (folder / _LIST).unlink(missing_ok=True)


def is_listed(folder: Path) -> bool:
    """Whether the folder has a list that can be read."""
    return bool(_read(folder))


def find_damage(folder: Path) -> str | None:
    """What differs from the list; None = nothing. A file whose size and time of change are as
    listed is not read again. New files are not damage. Bytecode that differs is removed instead, so
    that Python compiles its source."""
    there = dict(_stat_files(folder / "venv"))
    for name, (size, changed, sha256) in _read(folder).items():
        is_bytecode = name.endswith(".pyc")
        if name not in there:
            if is_bytecode:
                continue
            return f"{name} is missing"
        if there[name] != [size, changed] and _hash(folder / name) != sha256:
            if not is_bytecode:
                return f"{name} has other content"
            (folder / name).unlink(missing_ok=True)
    return None


def _read(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / _LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _stat_files(venv: Path) -> Iterator[tuple[str, list[int]]]:
    """Path below the environment's folder, and [size, ns] of each file, links followed."""
    begin = len(str(venv.parent)) + 1
    for parent, _, names in os.walk(venv):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - pathlib takes five times as long
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue  # a link to nothing
            yield path[begin:], [status.st_size, status.st_mtime_ns]


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
