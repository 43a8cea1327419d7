import os
import platform
import stat
import sys
from pathlib import Path

import pytest

from benchcore.environments import interpreters
from benchcore.environments.interpreters import (
    OLDEST,
    Interpreter,
    find_interpreters,
    inspect_interpreter,
    query_python,
)
from benchcore.errors import UserError


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _find_anew() -> list[Interpreter]:
    interpreters._search.cache_clear()
    return find_interpreters()


def test_finds_the_real_interpreter_that_runs_us_newest_first() -> None:
    found = _find_anew()

    assert Path(os.path.realpath(sys._base_executable)) in [each.path for each in found]  # type: ignore[attr-defined]
    assert found == sorted(found, key=lambda each: each.release, reverse=True)
    assert all(each.release >= OLDEST for each in found)
    for each in found:
        assert str(each.path) == os.path.realpath(each.path)
        assert query_python(
            each.path, "import sys, json; print(json.dumps(sys.executable))"
        ) == str(each.path)


def test_one_interpreter_behind_links_and_shims_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    alone = _find_anew()
    real = alone[0].path
    (tmp_path / "python3").symlink_to(real)
    (tmp_path / f"python{alone[0].minor}").symlink_to(real)
    _script(tmp_path / "python", f'exec {real} "$@"')
    _script(tmp_path / "python3.12", "echo not activated >&2; exit 127")
    _script(tmp_path / "python3.13", "echo '[]'")

    assert _find_anew() == alone


def test_a_process_looks_once_for_each_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _find_anew()
    monkeypatch.setattr(interpreters, "_listed_by_uv", lambda: pytest.fail("looked again"))
    assert find_interpreters() == here
    monkeypatch.setattr(interpreters, "_listed_by_uv", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [each.version for each in find_interpreters()] == [platform.python_version()]


def test_versions_sort_as_numbers() -> None:
    old, new = Interpreter(Path("/a"), "3.9.18"), Interpreter(Path("/b"), "3.12.1")

    assert max(old, new, key=lambda each: each.release) is new
    assert new.minor == "3.12"


def test_a_named_python_keeps_its_virtual_environment_but_not_its_shim(tmp_path: Path) -> None:
    shim = _script(tmp_path / "python3", f'exec {sys.executable} "$@"')

    assert inspect_interpreter(shim).path == Path(sys.executable)


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not run as one"):
        inspect_interpreter(_script(tmp_path / "python3", "exit 0"))


def test_a_python_too_old_for_the_inside_ring_is_refused(tmp_path: Path) -> None:
    answer = '{"implementation": "cpython", "version": "3.9.18", "base_prefix": "/"}'
    with pytest.raises(UserError, match=r"wanted CPython 3\.11 or later, got cpython 3\.9\.18"):
        inspect_interpreter(_script(tmp_path / "python3", f"echo '{answer}'"))


def test_questions_are_isolated_from_the_users_python_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leak.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import importlib.util as u, json; print(json.dumps(u.find_spec('leak') is None))"

    assert query_python(Path(sys.executable), code) is True


def test_an_interpreter_that_fails_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="wanted '/nowhere/python' to run"):
        query_python(Path("/nowhere/python"), "print(1)")
