"""The list of an environment's files finds every change, and only changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchcore.environments import contents

FILE = "venv/lib/module.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (FILE, "venv/lib/__pycache__/module.pyc", "venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1234")
    contents.list_files(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: path.unlink(), f"{FILE} is missing"),
        (lambda path: path.write_text(""), f"{FILE} has other content"),
        (lambda path: path.write_text("1235"), f"{FILE} has other content"),
    ],
)
def test_damage_is_found(folder: Path, damage: Callable[[Path], object], found: str) -> None:
    damage(folder / FILE)
    os.utime(folder / FILE, ns=(0, 0)) if (folder / FILE).exists() else None
    assert contents.find_damage(folder) == found


def test_touched_files_new_files_and_bytecode_are_no_damage(folder: Path) -> None:
    assert contents.find_damage(folder) is None
    os.utime(folder / FILE, ns=(0, 0))
    (folder / "venv/lib/new.py").touch()
    (folder / "venv/lib/__pycache__/module.pyc").unlink()
    assert contents.find_damage(folder) is None


def test_a_damaged_list_is_no_list(folder: Path) -> None:
    assert contents.is_listed(folder)
    (folder / "files.json").write_text('{"venv/')
    assert not contents.is_listed(folder)


def test_bytecode_that_a_crash_cut_is_removed(folder: Path) -> None:
    """Else it would end every contender, as Python checks its header only."""
    path = folder / "venv/lib/__pycache__/module.pyc"
    os.utime(path, ns=(0, 0))
    assert contents.find_damage(folder) is None and path.exists(), "it is the same"
    path.write_text("12")
    assert contents.find_damage(folder) is None and not path.exists()
