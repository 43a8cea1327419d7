"""Environments: locked, content-addressed, built once under a file lock, and verified."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from benchcore.cell.measure import gpu
from benchcore.cell.processes.launch import inherited_environ
from benchcore.environments import contents
from benchcore.environments.child_lifetime import tie_to_thread
from benchcore.environments.interpreters import query_python
from benchcore.environments.package_locks import (
    Accelerator,
    Lock,
    lock_release,
)
from benchcore.environments.templates import Template, load_template, template_folder
from benchcore.environments.uv_command import run_uv, run_uv_or_cached, shorten
from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError, UserError
from benchcore.protocol import EnvironmentRecord, name_part, write_json
from benchcore.state import State

_MARKER = "environment.json"
_INSTALL_TIMEOUT_S = 3600
_VERIFY_TIMEOUT_S = 600
_CHOOSE = "run `deadheat verify`, or choose another Python or version"
Device = Literal["cpu", "cuda", ""]
_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,99}")
_DESCRIBE = """
import importlib.metadata, json, re, sys, sysconfig
found = {}
for each in importlib.metadata.distributions():
    name = each.metadata["Name"]
    if name:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), each.version)
platform = f"{sysconfig.get_platform()} {sysconfig.get_config_var('SOABI')}"
version = ".".join(map(str, sys.version_info[:3]))
found = dict(sorted(found.items()))
print(json.dumps({"packages": found, "platform": platform, "version": version}))
"""


def provision(
    release: Release,
    state: State,
    *,
    accelerator: Accelerator,
    report: Callable[[str], None],
    templates: Traversable | None = None,
) -> EnvironmentRecord:
    """The environment of a release: the existing one, or built and verified now.

    `report` gets progress messages. Raises EnvironmentBuildError if it can't be locked, built or
    verified, and UserError if neither the network nor uv's cache has its packages.
    """
    template = load_template(release.framework, templates or template_folder()).add(release.extras)
    try:
        if release.framework == "stdlib" or release.role == "system":
            return _adopt(release, template, state, accelerator, report)
        lock = lock_release(release, template, accelerator)
        return provision_locked(
            release, lock, state, accelerator=accelerator, report=report, template=template
        )
    except OSError as error:
        raise EnvironmentBuildError(
            f"wanted the environment of {release.framework} {release.version} in "
            f"{str(state.environments)!r}, got {error.strerror or error}; free space, or set "
            "the folder's permissions, and rerun"
        ) from error


def list_environments(state: State) -> list[EnvironmentRecord]:
    """Every complete environment of the state folder, sorted by name and key."""
    records = [read_record(marker) for marker in state.environments.glob(f"*/{_MARKER}")]
    return sorted((each for each in records if each), key=lambda each: (each.name, each.key))


def provision_locked(
    release: Release,
    lock: Lock,
    state: State,
    *,
    accelerator: Accelerator,
    report: Callable[[str], None],
    template: Template | None = None,
) -> EnvironmentRecord:
    """The environment of a given lock, built as `provision` does. Raises as it does."""
    template = template or load_template(release.framework, template_folder()).add(release.extras)
    platform = _describe(release.python)["platform"]
    name, key = _name(release), _key(lock.text, release.python_version, platform)
    folder = state.environments / f"{name}-{key[:12]}"
    if (existing := _find_whole(folder)) is not None:
        return dataclasses.replace(existing, build=lock.build)
    with _locked(folder, report):
        if (existing := _find_whole(folder) or _adopt_unlisted(folder, template)) is not None:
            return dataclasses.replace(existing, build=lock.build)
        report(f"building {name} ({lock.build}) on Python {release.python_version}")
        python = _build(folder, lock, release, report)
        device = _pick_device(accelerator, report)
        _verify(python, template, device, complete=True)
        os.sync()  # uv syncs no file, and a crash must not leave a list of files that are empty
        contents.list_files(folder)
        record = EnvironmentRecord(
            name=name,
            key=key,
            lock_sha256=lock.sha256,
            python=str(python),
            python_version=release.python_version,
            build=lock.build,
            packages=lock.packages,
        )
        write_json(folder / _MARKER, dataclasses.asdict(record))
    report(f"built {name} in {folder}")
    return record


def remove_packages(folder: Path) -> bool:
    """Remove an environment's packages, but keep its lock; False if another process builds it. It
    is renamed first, so that no interruption leaves a part of it that looks whole."""
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        with lock.acquire(timeout=0):
            gone = (folder / "venv").rename(folder / f".removed-{uuid.uuid4().hex[:8]}")
            contents.remove_list(folder)
            shutil.rmtree(gone)
    except Timeout:
        return False
    return True


def _adopt(
    release: Release,
    template: Template,
    state: State,
    accelerator: Accelerator,
    report: Callable[[str], None],
) -> EnvironmentRecord:
    """The record of an interpreter as it is, verified on every call because it can change."""
    bare = release.framework == "stdlib"
    described = _describe(release.python)
    packages = {} if bare else described["packages"]
    device = "cpu" if accelerator == "cpu" else ""
    absent = _verify(release.python, template, device, complete=False)
    if absent:
        report(f"{release.python} lacks {', '.join(absent)}; workloads that need it can't run")
    name = _name(release)
    pins = "".join(f"{package}=={version}\n" for package, version in packages.items())
    record = EnvironmentRecord(
        name=name,
        key=_key(pins, release.python_version, described["platform"]),
        lock_sha256=None,
        python=str(release.python),
        python_version=release.python_version,
        build="bare interpreter" if bare else "system",
        packages=packages,
    )
    folder = state.environments / f"{name}-{record.key[:12]}"
    with _locked(folder, report):
        if read_record(folder / _MARKER) != record:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / _MARKER, dataclasses.asdict(record))
    return record


def _build(folder: Path, lock: Lock, release: Release, report: Callable[[str], None]) -> Path:
    """Remove an interrupted build, then install the lock. Returns the environment's Python."""
    if folder.exists():
        report(f"removing the unfinished {folder.name}{_describe_damage(folder)}")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    requirements = folder / "requirements.lock"
    part = name_part(requirements)
    part.write_text(lock.text, encoding="utf-8")
    part.replace(requirements)
    venv = folder / "venv"
    made = run_uv(["venv", "--python", str(release.python), "--no-project", str(venv)])
    if made.failure is not None:
        raise EnvironmentBuildError(
            f"wanted a virtual environment of {str(release.python)!r}; uv reported: "
            f"{made.message}; {_CHOOSE}"
        )
    python = venv / "bin" / "python"
    arguments = ["pip", "sync", str(requirements), "--python", str(python), "--require-hashes"]
    arguments += ["--compile-bytecode", "--no-build", *lock.index_arguments]
    synced = run_uv_or_cached(arguments, timeout_s=_INSTALL_TIMEOUT_S)
    if synced.failure == "uncached":
        raise UserError(
            f"wanted to install {_name(release)}, but the package index did not answer and uv's "
            "cache lacks some of its packages; connect to the network once; uv reported: "
            f"{synced.message}"
        )
    if synced.failure is not None:
        raise EnvironmentBuildError(
            f"wanted to install {_name(release)}; uv reported: {synced.message}; {_CHOOSE}"
        )
    if "Failed to hardlink" in synced.message:
        report("uv's cache is on another file system, so packages were copied; set UV_CACHE_DIR")
    return python


def _pick_device(accelerator: Accelerator, report: Callable[[str], None]) -> Device:
    """Where an environment is verified; empty = anywhere, as a CUDA build was made without a
    GPU, on a login node."""
    if accelerator == "cpu":
        return "cpu"
    usable, found = gpu.survey()
    if not usable:
        report(f"not verified on a GPU, as there is none here: {found}")
    return "cuda" if usable else ""


def _verify(python: Path, template: Template, device: Device, *, complete: bool) -> list[str]:
    """Import the companions and multiply once, on that device; empty = the framework's choice.
    Returns the absent companions; with `complete`, an absent one is an error. Not run on a GPU."""
    code = (
        f"import importlib, importlib.util, json\ndevice = {device!r}\n"
        f"absent = [n for n in {template.imports!r} if importlib.util.find_spec(n) is None]\n"
        f"assert not (absent and {complete!r}), absent\n"
        f"for name in {template.imports!r}:\n"
        "    if name not in absent:\n"
        "        importlib.import_module(name)\n"
        f"{template.verification}\n"
        "print('\\n' + json.dumps(absent))\n"
    )
    environment = {**inherited_environ(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if device:
        environment["JAX_PLATFORMS"] = device
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    try:
        done = subprocess.run(
            tie_to_thread([str(python), "-I", "-c", code]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            timeout=_VERIFY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentBuildError(
            f"wanted {str(python)!r} to import its framework within {_VERIFY_TIMEOUT_S} s; check "
            "whether its file system is slow"
        ) from error
    if done.returncode != 0:
        raise EnvironmentBuildError(
            f"wanted {str(python)!r} to import its framework and multiply two matrices"
            + (f" on {device}" if device else "")
            + f", got exit status {done.returncode}: {shorten(done.stderr)}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def _describe(python: Path) -> dict[str, Any]:
    try:
        return query_python(python, _DESCRIBE)
    except ValueError as error:
        raise EnvironmentBuildError(f"{error}; check it, and rerun") from error


@contextlib.contextmanager
def _locked(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's file lock: one process builds, others wait and reuse its work."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process to build {folder.name}")
        try:
            lock.acquire(timeout=2 * _INSTALL_TIMEOUT_S)
        except Timeout:
            raise EnvironmentBuildError(
                f"another process holds {lock.lock_file} for {2 * _INSTALL_TIMEOUT_S} s; end it"
            ) from None
    try:
        yield
    finally:
        lock.release()


def read_record(path: Path) -> EnvironmentRecord | None:
    """The record of a complete environment; None if there is none that can be read, or its Python
    is gone."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        record = EnvironmentRecord(**document)
        return record if Path(record.python).exists() else None
    except (OSError, ValueError, TypeError):
        return None


def has_extras_of(record: EnvironmentRecord, release: Release) -> bool:
    """Whether an environment was built with the further packages of this release, and no others."""
    return record.name.partition("_")[2] == _name(release).partition("_")[2]


def is_whole(record: EnvironmentRecord) -> bool:
    """Whether its files are as they were built, which can't be known without their list. A Python
    that we did not install is always."""
    folder = Path(record.python).parent.parent.parent
    return record.lock_sha256 is None or _is_as_listed(folder)


def is_unchanged(record: EnvironmentRecord) -> bool:
    """Whether a Python that we did not install has the version and packages that were recorded, as
    it can be upgraded in place. One that we installed always has; `is_whole` checks its files."""
    if record.lock_sha256 is not None:
        return True
    try:
        now = _describe(Path(record.python))
    except EnvironmentBuildError:
        return False
    packages = now["packages"] if record.packages else {}  # a bare interpreter's are not recorded
    return (now["version"], packages) == (record.python_version, record.packages)


def _find_whole(folder: Path) -> EnvironmentRecord | None:
    return read_record(folder / _MARKER) if _is_as_listed(folder) else None


def _is_as_listed(folder: Path) -> bool:
    return contents.is_listed(folder) and contents.find_damage(folder) is None


def _adopt_unlisted(folder: Path, template: Template) -> EnvironmentRecord | None:
    """One built before files were listed: it is verified once, and listed."""
    record = read_record(folder / _MARKER)
    if record is None or contents.is_listed(folder):
        return None
    try:
        _verify(Path(record.python), template, "cpu", complete=True)
    except EnvironmentBuildError:
        return None
    contents.list_files(folder)
    return record


def _describe_damage(folder: Path) -> str:
    damage = contents.find_damage(folder)
    return f": {damage}" if damage else ""


def _name(release: Release) -> str:
    more = "".join(f"_{each}" for each in release.extras)
    name = f"{release.framework}-{release.version}{more}".lower()
    assert _NAME.fullmatch(name), name
    return name


def _key(content: str, python_version: str, platform: str) -> str:
    return hashlib.sha256(f"{content}\n{python_version}\n{platform}\n".encode()).hexdigest()[:16]
