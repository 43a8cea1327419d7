"""Requests to the real package index, and to none: what it offers, and what uv's cache knows."""

import os
from pathlib import Path

import pytest
from packaging.version import Version

from benchcore.environments.interpreters import Interpreter, find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.errors import UserError


@pytest.fixture
def only_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Interpreter]:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    return find_interpreters()


@pytest.mark.provisions
def test_the_real_index_limits_the_release_to_the_pythons_found(
    only_this_python: list[Interpreter],
) -> None:
    if only_this_python[0].release[:2] != (3, 11):
        pytest.skip("jax >= 0.11 installs on the Python that runs the tests")
    release = resolve(parse_request("jax"), only_this_python)

    assert Version(release.version) < Version("0.11")
    assert Path(release.python) == Path(os.path.realpath(release.python))
    assert len(release.notes) == 1
    assert release.notes[0].startswith(f"JAX {release.version}: newer ")
    assert "needs Python >= 3.12, which was not found" in release.notes[0]


@pytest.mark.provisions
def test_previous_comes_right_before_newest_in_the_real_index() -> None:
    found = find_interpreters()
    newest = resolve(parse_request("torch"), found)
    previous = resolve(parse_request("torch@previous"), found)

    assert Version(previous.version) < Version(newest.version)
    assert not Version(newest.version).is_prerelease


@pytest.mark.provisions
def test_an_unpublished_release_is_refused_by_the_real_index() -> None:
    with pytest.raises(UserError, match=r"wanted jax==9\.9\.9, but the package index has no such"):
        resolve(parse_request("jax==9.9.9"), find_interpreters())


@pytest.mark.provisions
def test_a_release_without_wheels_is_refused_by_the_real_index() -> None:
    with pytest.raises(UserError, match="none of the interpreters found"):
        resolve(parse_request("jax==0.4.10"), find_interpreters())


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that refuses every connection."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


@pytest.mark.usefixtures("no_network")
def test_neither_network_nor_cache_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    found = find_interpreters()

    for text in ("jax", "torch@previous", "jax==0.10.1"):
        with pytest.raises(UserError, match="the package index did not answer and uv's cache"):
            resolve(parse_request(text), found)


@pytest.mark.provisions
def test_an_answer_from_the_cache_is_reported_if_there_is_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = find_interpreters()
    online = resolve(parse_request("jax"), found)
    monkeypatch.setenv("UV_OFFLINE", "1")

    offline = resolve(parse_request("jax"), found)

    assert offline.version == online.version
    assert any(note.startswith("no network") for note in offline.notes)
