"""The tests' compiler makes the same of the same text once, and anything else each time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cached_compiler import put_before

_COMPILER = """#!/bin/sh
echo "$@" >> {log}
test "$1" = bad.cpp && exit 3
test "$1" = --version && echo "fake 1.0" && exit
(cat "$1"; printf %s "$2") > "$4"
"""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    real = tmp_path / "real" / "c++"
    real.parent.mkdir()
    real.write_text(_COMPILER.format(log=tmp_path / "log"))
    real.chmod(0o755)
    return put_before(str(real), tmp_path / "kept") / "c++"


def _run(command: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    cwd = command.parents[2]
    return subprocess.run(
        [command, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_only_the_same_text_with_the_same_options_is_not_compiled_again(
    command: Path, tmp_path: Path
) -> None:
    for name, text, option in (
        ("one", "a", "-O1"),
        ("two", "a", "-O1"),  # in another file
        ("three", "b", "-O1"),
        ("four", "a", "-O2"),
    ):
        source = tmp_path / f"{name}.cpp"
        source.write_text(text)
        assert _run(command, source, option, "-o", f"{name}.so").returncode == 0
        assert (tmp_path / f"{name}.so").read_text() == text + option
    calls = (tmp_path / "log").read_text().splitlines()
    assert [Path(each.split()[0]).stem for each in calls] == ["one", "three", "four"]


def test_failures_and_questions_reach_the_compiler_each_time(command: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.cpp").touch()
    for _ in range(2):
        assert _run(command, "bad.cpp", "-O1", "-o", "bad.so").returncode == 3
        assert _run(command, "--version").stdout == "fake 1.0\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 4
