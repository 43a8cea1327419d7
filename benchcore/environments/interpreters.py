"""The Python interpreters of this machine that an environment can be built on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from benchcore.environments.uv_command import run_uv
from benchcore.errors import UserError

OLDEST = (3, 11)
"""The oldest Python that the measured layer supports."""
_EXECUTABLE = re.compile(r"python3\.(\d+)")
_CONDA_ROOTS = ("anaconda3", "miniconda3", "miniforge3", "mambaforge", "micromamba")
"""Folders in a home that the installers of conda and mamba suggest."""
_CONDA_ROOT = Path("/opt/conda")
_RELEVANT = ("PATH=", "HOME=", "UV_PYTHON", "UV_MANAGED", "UV_NO_M", "PYENV_", "CONDA_", "MAMBA_")
"""Variables that name where Pythons are; of uv's, not those of package indexes and caches."""
_FETCH_TIMEOUT_S = 300

_IDENTIFY = """
import json, os, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": ".".join(map(str, sys.version_info[:3])),
    "final": sys.version_info.releaselevel == "final",
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "executable": os.path.realpath(base),
    "started": sys.executable,
    "base_prefix": os.path.realpath(sys.base_prefix),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython: the path of its real executable, and its version such as `3.12.1`."""

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, to sort by."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def minor(self) -> str:
        """The version that wheels are built for, such as `3.12`."""
        return ".".join(self.version.split(".")[:2])


def find_interpreters() -> list[Interpreter]:
    """Every final CPython >= 3.11 with a GIL, newest first: on PATH, managed by uv, in the folders
    of pyenv, conda and mamba, or running this. Cached per process."""
    variables = [each for each in os.environ.items() if "=".join(each).startswith(_RELEVANT)]
    return list(_search(tuple(variables)))


@lru_cache(maxsize=8)
def _search(_variables: tuple[tuple[str, str], ...]) -> tuple[Interpreter, ...]:
    found: dict[tuple[str, str], Interpreter] = {}
    seen: set[str] = set()
    paths = dict.fromkeys([*_listed_by_uv(), sys.executable, *map(str, _list_in_folders())])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        identified = list(pool.map(_identify, map(Path, paths)))
    for facts in identified:
        if facts is None or facts["executable"] in seen or not _fits(facts):
            continue
        seen.add(facts["executable"])
        interpreter = Interpreter(Path(facts["executable"]), facts["version"])
        found.setdefault((facts["version"], facts["base_prefix"]), interpreter)
    return tuple(sorted(found.values(), key=lambda each: each.release, reverse=True))


@cache
def fetch_interpreter(minor: str) -> str | None:
    """Have uv install a Python such as `3.12`; why it could not, None = it is here now.

    uv's setting `python-downloads` forbids it, as does UV_PYTHON_DOWNLOADS. `manual` forbids it,
    too: the user didn't type the command. A process tries once.
    """
    setting = os.environ.get("UV_PYTHON_DOWNLOADS", "")
    if setting in ("never", "manual"):
        return f"UV_PYTHON_DOWNLOADS={setting} forbids uv to fetch it"
    arguments = ["python", "install", "--no-bin", minor]
    answer = run_uv(arguments, timeout_s=_FETCH_TIMEOUT_S, may_fetch_python=True)
    if answer.failure is None:
        _search.cache_clear()
        return None
    if answer.failure in ("unreachable", "uncached"):
        return "uv could not fetch it: its download host did not answer"
    return f"uv could not fetch it: {' '.join(answer.message.split())[:200]}"


def inspect_interpreter(python: Path) -> Interpreter:
    """The interpreter that a user named: shims resolved, links of virtual environments kept. Raises
    UserError if it is not a supported CPython."""
    facts = _identify(python)
    if facts is None:
        raise UserError(
            f"wanted a Python interpreter, got {str(python)!r}, which does not run as one; "
            "give the full path of a python executable"
        )
    if facts["implementation"] != "cpython" or _numbers(facts["version"]) < OLDEST:
        raise UserError(
            f"wanted CPython {OLDEST[0]}.{OLDEST[1]} or later, got {facts['implementation']} "
            f"{facts['version']} at {str(python)!r}; choose another interpreter"
        )
    return Interpreter(Path(facts["started"]), facts["version"])


def read_output(command: Sequence[str], timeout_s: float) -> str:
    """What a command prints. Raises OSError or SubprocessError if it fails or takes longer."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=True,
    )
    return done.stdout


def query_python(python: Path, code: str, *, timeout_s: float = 60) -> Any:
    """The JSON that `code` prints in an interpreter, isolated from the user's packages and PYTHON*
    variables. Raises ValueError if it can't be run or prints anything else."""
    try:
        return json.loads(read_output([str(python), "-I", "-c", code], timeout_s))
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"wanted {str(python)!r} to run, got {error}") from error


def _listed_by_uv() -> list[str]:
    """What uv lists, with a PATH without pyenv's shims: uv starts each shim, which takes seconds,
    and the Pythons behind them are found in pyenv's folder."""
    arguments = ["python", "list", "--only-installed", "--output-format", "json"]
    shims = {str(root / "shims") for root in _list_pyenv_roots()}
    path = os.pathsep.join(each for each in _list_path() if each.rstrip("/") not in shims)
    answer = run_uv(arguments, settings={"PATH": path}, timeout_s=60)
    if answer.failure is not None:
        return []
    return [item["path"] for item in json.loads(answer.output) if item.get("path")]


def _list_in_folders() -> Iterator[Path]:
    """The executables of pyenv's versions and of conda's and mamba's environments. Their names
    hold the version, so that older ones need not be started."""
    for prefix in dict.fromkeys(_list_prefixes()):
        for path in sorted(prefix.glob("bin/python3.*")):
            version = _EXECUTABLE.fullmatch(path.name)
            if version and (3, int(version[1])) >= OLDEST:
                yield path


def _list_prefixes() -> Iterator[Path]:
    home = Path.home()
    for root in _list_pyenv_roots():
        yield from sorted(root.glob("versions/*"))
    roots = [home / name for name in _CONDA_ROOTS] + [_CONDA_ROOT]
    if root := os.environ.get("MAMBA_ROOT_PREFIX"):
        roots.append(Path(root))
    if program := os.environ.get("CONDA_EXE"):
        roots.append(Path(program).parent.parent)
    for root in roots:
        yield root
        yield from sorted(root.glob("envs/*"))
    for folder in filter(None, os.environ.get("CONDA_ENVS_PATH", "").split(os.pathsep)):
        yield from sorted(Path(folder).glob("*"))
    for folder in (home / ".conda", home / ".mamba"):
        with suppress(OSError, UnicodeDecodeError):
            lines = (folder / "environments.txt").read_text(encoding="utf-8").splitlines()
            yield from (Path(line.strip()) for line in lines if line.strip())


def _list_path() -> list[str]:
    return os.environ.get("PATH", "").split(os.pathsep)


def _list_pyenv_roots() -> list[Path]:
    """Where pyenv keeps its versions: from its variable or a folder of shims on PATH."""
    own = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    beside = [Path(each).parent for each in _list_path() if Path(each).name == "shims"]
    return [own, *(each for each in beside if (each / "versions").is_dir())]


def _identify(python: Path) -> dict[str, Any] | None:
    try:
        facts = query_python(python, _IDENTIFY, timeout_s=20)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and "base_prefix" in facts else None


def _fits(facts: dict[str, Any]) -> bool:
    return (
        facts["implementation"] == "cpython"
        and _numbers(facts["version"]) >= OLDEST
        and facts["final"]
        and not facts["free_threaded"]
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
