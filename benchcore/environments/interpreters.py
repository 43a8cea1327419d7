"""The Python interpreters of this machine that an environment can be built on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchcore.environments.uv_command import run_uv
from benchcore.errors import UserError

OLDEST = (3, 11)
"""The oldest Python that the inside ring supports."""

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
    """Every final CPython >= 3.11 with a GIL: on PATH, of uv, or running this; newest first. Cached
    per process, because pyenv's shims take seconds to answer."""
    relevant = ("PATH", "UV_", "PYENV_")
    return list(_search(tuple(each for each in os.environ.items() if each[0].startswith(relevant))))


@lru_cache(maxsize=8)
def _search(_variables: tuple[tuple[str, str], ...]) -> tuple[Interpreter, ...]:
    found: dict[tuple[str, str], Interpreter] = {}
    seen: set[str] = set()
    for path in [*_listed_by_uv(), sys.executable]:
        facts = _identify(Path(path))
        if facts is None or facts["executable"] in seen or not _fits(facts):
            continue
        seen.add(facts["executable"])
        interpreter = Interpreter(Path(facts["executable"]), facts["version"])
        found.setdefault((facts["version"], facts["base_prefix"]), interpreter)
    return tuple(sorted(found.values(), key=lambda each: each.release, reverse=True))


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


def query_python(python: Path, code: str, *, timeout_s: float = 60) -> Any:
    """The JSON that `code` prints in an interpreter, isolated from the user's packages and PYTHON*
    variables. Raises ValueError if it can't be run or prints anything else."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=dict(os.environ),
            timeout=timeout_s,
            check=True,
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"wanted {str(python)!r} to run, got {error}") from error


def _listed_by_uv() -> list[str]:
    arguments = ["python", "list", "--only-installed", "--output-format", "json"]
    answer = run_uv(arguments, timeout_s=60)
    if answer.failure is not None:
        return []
    return [item["path"] for item in json.loads(answer.output) if item.get("path")]


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
