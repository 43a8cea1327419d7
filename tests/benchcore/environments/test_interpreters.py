import json
import os
import platform
import pwd
import socket
import stat
import sys
from collections.abc import Iterator
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
from benchcore.environments.uv_command import UvAnswer
from benchcore.errors import UserError


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(autouse=True)
def _nobodys_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home without Pythons, and nothing kept of it for other tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("PYENV_ROOT", "CONDA_EXE", "CONDA_ENVS_PATH", "MAMBA_ROOT_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(interpreters, "_CONDA_ROOT", tmp_path / "opt/conda")
    yield
    interpreters._search.cache_clear()
    interpreters.fetch_interpreter.cache_clear()


def _pretend(path: Path, version: str) -> Path:
    """An executable that answers as a Python of this version would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"implementation": "cpython", "version": version, "final": True}
    facts |= {"free_threaded": False, "executable": str(path), "started": str(path)}
    answer = json.dumps(facts | {"base_prefix": str(path.parent.parent)})
    return _script(path, f"echo '{answer}'")


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


def test_shims_of_pyenv_are_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes half a second; what they start is found in the folder of versions."""
    wanted = _pretend(tmp_path / "pyenv/versions/3.91.1/bin/python3.91", "3.91.1")
    shims = tmp_path / "pyenv/shims"
    shims.mkdir()
    _script(shims / "python3.91", f"touch {tmp_path / 'started'}; exec {wanted}")
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")

    assert wanted in [each.path for each in _find_anew()]
    assert not (tmp_path / "started").exists()


def test_a_process_looks_once_for_each_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _find_anew()
    monkeypatch.setattr(interpreters, "_listed_by_uv", lambda: pytest.fail("looked again"))
    assert find_interpreters() == here
    monkeypatch.setattr(interpreters, "_listed_by_uv", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [each.version for each in find_interpreters()] == [platform.python_version()]


def test_pythons_are_found_where_pyenv_conda_and_mamba_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    home = tmp_path / "home"
    wanted = {
        _pretend(home / ".pyenv/versions/3.91.1/bin/python3.91", "3.91.1"),
        _pretend(home / "miniconda3/envs/one/bin/python3.92", "3.92.0"),
        _pretend(tmp_path / "anywhere/bin/python3.93", "3.93.0"),
        _pretend(tmp_path / "envs/two/bin/python3.94", "3.94.0"),
        _pretend(tmp_path / "mamba/bin/python3.95", "3.95.0"),
        _pretend(tmp_path / "base/envs/three/bin/python3.96", "3.96.0"),
        _pretend(tmp_path / "opt/conda/bin/python3.97", "3.97.0"),
    }
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{tmp_path / 'anywhere'}\n/gone\n\n")
    monkeypatch.setenv("CONDA_ENVS_PATH", str(tmp_path / "envs"))
    monkeypatch.setenv("MAMBA_ROOT_PREFIX", str(tmp_path / "mamba"))
    monkeypatch.setenv("CONDA_EXE", str(tmp_path / "base/bin/conda"))
    too_old = _pretend(home / ".pyenv/versions/3.9.18/bin/python3.9", "3.9.18")
    _script(too_old, f"touch {tmp_path / 'started'}")

    found = {each.path for each in _find_anew() if each.release >= (3, 90)}

    assert found == wanted
    assert not (tmp_path / "started").exists()


def test_a_custom_pyenv_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = _pretend(tmp_path / "pyenv/versions/3.99.0/bin/python3.99", "3.99.0")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert _find_anew()[0] == Interpreter(python, "3.99.0")


def test_real_pythons_of_pyenv_need_not_be_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    kept = [each for each in (home / ".pyenv/versions").glob("3.1[1-9].*") if each.is_dir()]
    if not kept:
        pytest.skip("pyenv has no Python here")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(home))
    assert {each.name for each in kept} <= {each.version for each in _find_anew()}


@pytest.mark.parametrize("setting", ["never", "manual"])
def test_a_setting_forbids_to_fetch_a_python(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", setting)
    monkeypatch.setattr(interpreters, "run_uv", lambda *_, **__: pytest.fail("ran uv"))
    reason = interpreters.fetch_interpreter("3.14")
    assert reason == f"UV_PYTHON_DOWNLOADS={setting} forbids uv to fetch it"


def test_uvs_own_settings_forbid_to_fetch_a_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS", raising=False)
    settings = tmp_path / "uv.toml"
    settings.write_text('python-downloads = "never"\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    assert "downloads are not allowed" in str(interpreters.fetch_interpreter("3.14"))


def test_a_host_that_does_not_answer_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS", raising=False)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9/pythons")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    reason = interpreters.fetch_interpreter("3.14")
    assert reason == "uv could not fetch it: its download host did not answer"
    monkeypatch.setattr(interpreters, "run_uv", lambda *_, **__: pytest.fail("tried again"))
    assert interpreters.fetch_interpreter("3.14") == reason


def test_a_host_that_never_answers_is_waited_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS", raising=False)
    monkeypatch.setattr(interpreters, "_FETCH_TIMEOUT_S", 0.5)
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}/pythons"
        monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", mirror)
        reason = interpreters.fetch_interpreter("3.14")
    assert reason == "uv could not fetch it: its download host did not answer"


def test_a_python_that_uv_fetched_is_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS", raising=False)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    before = _find_anew()

    def install(arguments: list[str], **_: object) -> UvAnswer:
        if arguments[1] == "install":
            _pretend(tmp_path / "pyenv/versions/3.98.0/bin/python3.98", "3.98.0")
        return UvAnswer(output="[]", message="", failure=None, offline=False)

    monkeypatch.setattr(interpreters, "run_uv", install)
    assert interpreters.fetch_interpreter("3.98") is None
    assert find_interpreters()[0].version == "3.98.0" != before[0].version


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
