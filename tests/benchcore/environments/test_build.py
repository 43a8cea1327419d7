"""Environments are built once, whole and from their lock; a tiny package stands in for one."""

import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcore.environments import build as environments
from benchcore.environments.build import (
    is_unchanged,
    is_whole,
    list_environments,
    provision,
    provision_locked,
    remove_packages,
)
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.package_locks import Lock, lock_release, parse_lock
from benchcore.environments.templates import Template, load_template
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.errors import EnvironmentBuildError, UserError
from benchcore.protocol import EnvironmentRecord
from benchcore.state import State, open_state

TINY = "iniconfig"
TINY_VERSION = "2.1.0"
TINY_TEMPLATE = 'packages = ["idna"]\nimports = ["idna"]\nverification = "import iniconfig"\n'


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    (folder / f"{TINY}.toml").write_text(TINY_TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def python() -> tuple[Path, str]:
    newest = find_interpreters()[0]
    return newest.path, newest.version


@pytest.fixture(scope="module")
def tiny(python: tuple[Path, str]) -> Release:
    return Release(
        framework=TINY,  # type: ignore[arg-type]
        version=TINY_VERSION,
        role="pinned",
        python=python[0],
        python_version=python[1],
    )


def _silent(_line: str) -> None:
    pass


def _folder(record: EnvironmentRecord) -> Path:
    return Path(record.python).parents[2]


def test_the_bare_interpreter_is_recorded_without_a_build(
    state: State, python: tuple[Path, str]
) -> None:
    release = resolve(parse_request("stdlib"), find_interpreters())
    record = provision(release, state, accelerator="cpu", report=_silent)

    assert (record.name, record.python) == (f"stdlib-{python[1]}", str(python[0]))
    assert (record.lock_sha256, record.packages) == (None, {})
    assert re.fullmatch("[0-9a-f]{16}", record.key)
    assert list_environments(state) == [record]
    assert is_unchanged(record)
    assert not is_unchanged(dataclasses.replace(record, python_version="3.11.0"))
    assert not is_unchanged(dataclasses.replace(record, python="/usr/bin/false"))


def test_a_system_python_is_adopted_as_it_is(
    state: State, templates: Path, tiny: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(templates))
    (templates / f"{TINY}.toml").write_text(
        TINY_TEMPLATE.replace('"idna"]\nver', '"idna", "absent_companion"]\nver')
    )
    version = platform.python_version()
    release = dataclasses.replace(
        tiny, role="system", python=Path(sys.executable), python_version=version
    )
    lines: list[str] = []

    record = provision(release, state, accelerator="cpu", report=lines.append, templates=templates)
    (templates / f"{TINY}.toml").write_text(TINY_TEMPLATE)

    assert (record.build, record.lock_sha256) == ("system", None)
    assert record.python == sys.executable
    assert record.packages["pytest"] == pytest.__version__
    assert lines == [f"{sys.executable} lacks absent_companion; workloads that need it can't run"]
    assert list_environments(state) == [record]
    assert is_unchanged(record)
    assert not is_unchanged(dataclasses.replace(record, packages={"pytest": "1.0"}))


def test_a_system_python_that_fails_its_verification_is_refused(
    state: State, tmp_path: Path, tiny: Release
) -> None:
    (tmp_path / f"{TINY}.toml").write_text("verification = \"raise SystemError('broken BLAS')\"")
    release = dataclasses.replace(tiny, role="system", python=Path(sys.executable))

    with pytest.raises(EnvironmentBuildError, match="broken BLAS"):
        provision(release, state, accelerator="cpu", report=_silent, templates=tmp_path)
    assert list_environments(state) == []


def test_an_environment_is_on_the_disk_before_its_files_are_listed(
    state: State, tiny: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash leaves files that differ from their list, or their list alone."""
    steps: list[str] = []

    def note(step: str, answer: object = None) -> Callable[..., object]:
        return lambda *_given, **_options: (steps.append(step), answer)[1]

    def build(folder: Path, *_: object) -> Path:
        folder.mkdir()
        steps.append("build")
        return Path(sys.executable)

    monkeypatch.setattr(environments, "_build", build)
    monkeypatch.setattr(environments, "_verify", note("verify", []))
    monkeypatch.setattr(os, "sync", note("sync"))
    monkeypatch.setattr(environments.contents, "list_files", note("list"))
    lock = Lock(text="", packages={}, build="cpu")
    options: dict[str, Any] = {"accelerator": "cpu", "template": Template(verification="")}
    provision_locked(tiny, lock, state, report=_silent, **options)
    assert steps == ["build", "verify", "sync", "list"]


@pytest.mark.provisions
def test_a_real_jax_environment_is_built_once_and_reused(
    framework_environment: Callable[[str], EnvironmentRecord],
    session_state: State,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = framework_environment("jax")
    marker = _folder(record) / "environment.json"
    written = marker.stat().st_mtime_ns
    monkeypatch.setattr(environments, "_build", None)
    release = resolve(parse_request("jax"), find_interpreters())
    lines: list[str] = []
    again = provision(release, session_state, accelerator="cpu", report=lines.append)

    assert again == record
    assert marker.stat().st_mtime_ns == written
    assert lines == []
    assert record.name == f"jax-{release.version}"
    assert _folder(record).name == f"jax-{release.version}-{record.key[:12]}"
    assert record.packages["jax"] == release.version
    assert {"jaxlib", "flax", "optax", "numpy", "nvidia-ml-py"} <= set(record.packages)
    lock = (_folder(record) / "requirements.lock").read_text()
    assert parse_lock(lock) == record.packages
    assert "/" not in re.sub(r"\\", "", lock)
    installed = subprocess.run(
        [record.python, "-I", "-c", "import jax; print(jax.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert installed.stdout.strip() == release.version


def _provision_tiny(tiny: Release, state: State, templates: Path) -> EnvironmentRecord:
    return provision(tiny, state, accelerator="cpu", report=_silent, templates=templates)


@pytest.mark.provisions
def test_an_unfinished_folder_is_wiped_and_built_again(
    state: State, templates: Path, tiny: Release
) -> None:
    record = _provision_tiny(tiny, state, templates)
    folder = _folder(record)
    (folder / "environment.json").unlink()
    (folder / "requirements.lock.part").write_text("half")
    shutil.rmtree(folder / "venv" / "lib")
    assert list_environments(state) == []

    assert _provision_tiny(tiny, state, templates) == record
    assert not (folder / "requirements.lock.part").exists()
    subprocess.run([record.python, "-I", "-c", "import iniconfig, idna"], check=True)


@pytest.mark.provisions
@pytest.mark.parametrize(
    "harm", ["interpreter", "marker", "list", "emptied", "half deleted", "pruned"]
)
def test_a_damaged_environment_is_built_again(
    harm: str, state: State, templates: Path, tiny: Release
) -> None:
    record = _provision_tiny(tiny, state, templates)
    if harm == "interpreter":
        Path(record.python).unlink()
        Path(record.python).symlink_to("/nowhere/python3")
    elif harm == "pruned":
        assert remove_packages(_folder(record)) and list_environments(state) == []
        assert (_folder(record) / "requirements.lock").exists()
    elif harm in ("emptied", "half deleted"):
        (package,) = _folder(record).glob("venv/lib/*/site-packages/iniconfig")
        assert is_whole(record)
        for file in package.glob("*.py"):
            file.unlink()  # it may be a link into uv's cache
            if harm == "emptied":
                file.touch()
        assert not is_whole(record)
    elif harm == "list":
        (_folder(record) / "files.json").write_text('{"venv/')
        assert not is_whole(record)
    else:
        (_folder(record) / "environment.json").write_text('{"name": ')
        assert list_environments(state) == []
    assert _provision_tiny(tiny, state, templates) == record
    assert is_whole(record)
    subprocess.run([record.python, "-I", "-c", "from iniconfig import IniConfig"], check=True)


@pytest.mark.provisions
def test_the_same_lock_has_the_same_key_in_any_state_folder(
    tmp_path: Path, templates: Path, tiny: Release
) -> None:
    first = _provision_tiny(tiny, open_state(tmp_path / "one"), templates)
    second = _provision_tiny(tiny, open_state(tmp_path / "another one"), templates)

    assert (first.key, first.lock_sha256) == (second.key, second.lock_sha256)
    assert first.python != second.python


@pytest.mark.provisions
def test_one_of_two_processes_builds_and_the_other_waits(
    state: State, templates: Path, tiny: Release, tmp_path: Path
) -> None:
    code = f"""
import json, sys
from pathlib import Path
from benchcore.environments.build import provision
from benchcore.environments.version_requests import Release
from benchcore.state import open_state
release = Release(framework={TINY!r}, version={tiny.version!r}, role="pinned",
                  python=Path({str(tiny.python)!r}), python_version={tiny.python_version!r})
lines = []
record = provision(release, open_state(Path({str(state.root)!r})), accelerator="cpu",
                   report=lines.append, templates=Path({str(templates)!r}))
print(json.dumps([record.key, lines]))
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [json.loads(each.communicate(timeout=120)[0]) for each in running]

    assert [each.returncode for each in running] == [0, 0, 0]
    assert len({key for key, _ in answers}) == 1
    assert sum("built" in " ".join(lines) for _, lines in answers) == 1


@pytest.mark.provisions
def test_waiting_for_another_build_is_reported(
    state: State, templates: Path, tiny: Release
) -> None:
    record = _provision_tiny(tiny, state, templates)
    (_folder(record) / "environment.json").unlink()
    waited = threading.Event()
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        waited.set()

    with environments._locked(_folder(record), _silent):
        second = threading.Thread(
            target=lambda: provision(
                tiny, state, accelerator="cpu", report=report, templates=templates
            )
        )
        second.start()
        assert waited.wait(timeout=30)
    second.join(timeout=60)

    assert lines[0] == f"waiting for another process to build {_folder(record).name}"
    assert list_environments(state) == [record]


@pytest.mark.provisions
def test_a_lock_with_a_tampered_hash_is_never_installed(
    state: State, templates: Path, tiny: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = lock_release(tiny, load_template(tiny.framework, templates), "cpu")
    text = re.sub(r"sha256:[0-9a-f]{8}", "sha256:" + "0" * 8, honest.text)
    tampered = Lock(text=text, packages=honest.packages, build=honest.build)
    monkeypatch.setattr(environments, "lock_release", lambda *_: tampered)

    with pytest.raises(EnvironmentBuildError, match=r"(?i)hash mismatch"):
        _provision_tiny(tiny, state, templates)
    assert list_environments(state) == []


@pytest.mark.provisions
def test_an_environment_that_fails_its_verification_is_not_complete(
    state: State, tmp_path: Path, tiny: Release
) -> None:
    (tmp_path / f"{TINY}.toml").write_text('imports = ["absent"]\nverification = ""')

    with pytest.raises(EnvironmentBuildError, match=r"AssertionError: \['absent'\]"):
        _provision_tiny(tiny, state, tmp_path)
    assert list_environments(state) == []


@pytest.mark.provisions
def test_a_failed_resolution_is_a_build_error_with_the_message_of_uv(
    state: State, templates: Path, tiny: Release
) -> None:
    with pytest.raises(
        EnvironmentBuildError, match=r"(?s)uv reported: .*no version of iniconfig==99"
    ):
        _provision_tiny(dataclasses.replace(tiny, version="99"), state, templates)


def test_neither_network_nor_cache_is_a_user_error(
    state: State,
    templates: Path,
    tiny: Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    with pytest.raises(UserError, match="the package index did not answer and uv's cache"):
        _provision_tiny(tiny, state, templates)
    assert list_environments(state) == []


@pytest.mark.provisions
def test_without_network_the_cache_is_enough(
    state: State, templates: Path, tiny: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = _provision_tiny(tiny, state, templates)
    monkeypatch.setenv("UV_OFFLINE", "1")

    offline = _provision_tiny(tiny, open_state(tmp_path / "other"), templates)

    assert offline.key == online.key


def test_a_state_folder_that_cannot_be_written_is_a_build_error(
    state: State, templates: Path, tiny: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock(text=f"{TINY}=={TINY_VERSION}\n", packages={TINY: TINY_VERSION}, build="cpu")
    monkeypatch.setattr(environments, "lock_release", lambda *_: lock)
    shutil.rmtree(state.environments)
    state.environments.write_text("in the way")

    with pytest.raises(EnvironmentBuildError, match="permissions, and rerun"):
        _provision_tiny(tiny, state, templates)
