"""Resolves a version request such as `jax@previous` to a release and a Python of this machine.

Versions are queried through uv, never through a registry's own interface, so the user's index
settings hold.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from benchcore.environments.interpreters import (
    Interpreter,
    fetch_interpreter,
    find_interpreters,
    inspect_interpreter,
    query_python,
)
from benchcore.environments.templates import load_template, template_folder
from benchcore.environments.version_index import (
    InstallableVersion,
    LaterPythonVersion,
    VersionIndex,
)
from benchcore.errors import UserError
from benchcore.protocol import Framework

Selector = Literal["newest", "previous", "pinned", "system"]
_REQUEST = re.compile(
    r"(?P<framework>jax|torch)(?:\[(?P<extra>[a-z0-9-]{1,30})\])?"
    r"(?:@(?P<selector>newest|previous|system)(?::(?P<python>[^\x00-\x1f]{1,1024}))?"
    r"|==(?P<version>[0-9A-Za-z.+_-]{1,64}))?"
)
_GRAMMAR = (
    "jax, jax@newest, jax@previous, jax==0.12.0, jax@system or jax@system:/path/to/python "
    "(torch likewise; torch[opacus] adds packages), or stdlib"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A parsed request that is not resolved yet."""

    framework: Framework
    selector: Selector
    version: str | None = None
    python: Path | None = None
    extras: tuple[str, ...] = ()
    """Named sets of further packages, as its template lists them."""

    @property
    def named(self) -> str:
        """The framework with its further packages: `torch[opacus]`."""
        return self.framework + (f"[{','.join(self.extras)}]" if self.extras else "")

    def __str__(self) -> str:
        if self.framework == "stdlib":
            return "stdlib"
        if self.selector == "pinned":
            return f"{self.named}=={self.version}"
        return f"{self.named}@{self.selector}" + (f":{self.python}" if self.python else "")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a framework on one interpreter; `notes` are hints for the user."""

    framework: Framework
    version: str
    role: Selector
    python: Path
    python_version: str
    notes: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    """Named sets of further packages: its environment is then another one than without them."""


def parse_request(text: str) -> Request:
    """Parse a request such as `jax@previous`. Raises UserError if it is none."""
    if text == "stdlib":
        return Request(framework="stdlib", selector="newest")
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise UserError(f"wanted one of {_GRAMMAR}; got {_shown(text)}; use one of these forms")
    framework: Framework = "jax" if match["framework"] == "jax" else "torch"
    extras = (match["extra"],) if match["extra"] else ()
    if extras:
        load_template(framework, template_folder()).add(extras)
    if match["version"] is not None:
        version = _version(match["version"])
        return Request(framework=framework, selector="pinned", version=version, extras=extras)
    selector = match["selector"] or "newest"
    if extras and selector == "system":
        raise UserError(
            f"wanted no packages in brackets for a Python that is taken as it is, got "
            f"{_shown(text)}; leave them out, and install them there"
        )
    if match["python"] is None:
        return Request(framework=framework, selector=selector, extras=extras)  # type: ignore[arg-type]
    if selector != "system":
        raise UserError(
            f"wanted a Python's path only after '@system:', got {_shown(text)}; write "
            f"{framework}@system:PATH, or name an interpreter version with --python"
        )
    return Request(framework=framework, selector="system", python=_executable(match["python"]))


def resolve(
    request: Request, interpreters: list[Interpreter], *, python: str | None = None
) -> Release:
    """The release that a request means, on the newest interpreter that can install it.

    `python` restricts the interpreters to a version such as `3.12`. Without a network uv's cache
    answers, and a note reports it. Raises UserError.
    """
    if request.selector == "system":
        return _adopt(request, python)
    candidates = pick_interpreters(interpreters, python)
    if request.framework == "stdlib":
        best = candidates[0]
        return Release(
            framework="stdlib",
            version=best.version,
            role="newest",
            python=best.path,
            python_version=best.version,
        )
    index = VersionIndex(request.framework)
    if request.selector == "pinned":
        found = index.find_installable(str(request.version), candidates)
        if found is None:
            raise _explain_pinned(index, request, candidates)
        return _release(request, found, index, ())
    return _resolve_latest(index, request, candidates, python)


def _resolve_latest(
    index: VersionIndex, request: Request, candidates: list[Interpreter], python: str | None
) -> Release:
    newest = index.find_highest("", candidates)
    if newest is None:
        raise _explain_latest(index, request, candidates)
    later = index.find_newest_for_later_pythons(candidates[0])
    why = ""
    if later is not None and Version(later.version) > Version(newest.version):
        why = _explain_missing(index, later, python)
        if not why:
            candidates = pick_interpreters(find_interpreters(), python)
            newest = index.find_highest("", candidates) or newest
            why = "where it can't be installed"
    found = newest
    if request.selector == "previous":
        below = index.find_highest(f"<{Version(newest.version).public}", candidates)
        if below is None:
            raise _explain_latest(index, request, candidates)
        found = below
    notes: tuple[str, ...] = ()
    if later is not None and Version(later.version) > Version(newest.version):
        name = {"jax": "JAX", "torch": "PyTorch"}[request.framework]
        notes = (
            f"{name} {newest.version}: newer {later.version} needs Python >= {later.python}, {why}",
        )
    return _release(request, found, index, notes)


def _explain_missing(index: VersionIndex, later: LaterPythonVersion, python: str | None) -> str:
    """Why there is no Python for a later version; empty = there is one now, as uv fetched it."""
    if python is not None:
        return f"and {python} was requested"
    if index.offline:
        return "which was not found (no network to fetch it)"
    refusal = fetch_interpreter(later.python)
    if refusal is None:
        return ""
    return (
        f"which was not found ({refusal}); install one, or run `uv python install {later.python}`"
    )


def _release(
    request: Request, found: InstallableVersion, index: VersionIndex, notes: tuple[str, ...]
) -> Release:
    if index.offline:
        notes += ("no network: the versions come from uv's cache; newer ones may exist",)
    return Release(
        framework=request.framework,
        version=found.version,
        role=request.selector,
        python=found.interpreter.path,
        python_version=found.interpreter.version,
        notes=notes,
        extras=request.extras,
    )


def check_python(python: str | None) -> None:
    """Raises UserError for text that is not a version of Python."""
    if python is not None and not re.fullmatch(r"3\.\d{1,2}(\.\d{1,2})?", python):
        raise UserError(
            f"wanted a Python version such as '3.12' or '3.12.1', got {_shown(python)}; "
            "choose another with --python"
        )


def pick_interpreters(interpreters: list[Interpreter], python: str | None) -> list[Interpreter]:
    """The newest interpreter of each minor version that the user allows, newest first."""
    check_python(python)
    by_minor: dict[str, Interpreter] = {}
    for each in sorted(interpreters, key=lambda one: one.release, reverse=True):
        if python is None or f"{each.version}.".startswith(f"{python}."):
            by_minor.setdefault(each.minor, each)
    if not by_minor:
        raise UserError(
            f"wanted a CPython {python or '3.11 or later'}, found {_listed(interpreters)}; put one "
            "on PATH, or run `uv python install`"
        )
    return list(by_minor.values())


def _explain_pinned(
    index: VersionIndex, request: Request, candidates: list[Interpreter]
) -> UserError:
    message = index.failures[0].message
    text = " ".join(message.split())
    if (refusal := _explain_refusal(index, request)) is not None:
        return refusal
    if f"no version of {request.framework}==" in text or "not found in the package" in text:
        return UserError(
            f"wanted {request}, but the package index has no such release; choose another "
            f"version, or {request.framework}@newest"
        )
    pin = re.escape(f"{request.framework}=={request.version}")
    needs = re.search(rf"{pin} depends on Python([<>=!~][<>=!~.,\d]*\d)", text)
    return UserError(
        f"wanted {request}, which none of the interpreters found ({_listed(candidates)}) can "
        "install; put a Python that it supports on PATH, run `uv python install`, or choose "
        "another version; "
        + (f"it needs Python {needs[1]}" if needs else f"uv reported: {message}")
    )


def _explain_latest(
    index: VersionIndex, request: Request, candidates: list[Interpreter]
) -> UserError:
    message = index.failures[-1].message if index.failures else "nothing"
    return _explain_refusal(index, request) or UserError(
        f"wanted {request}, but the package index has no such release that the interpreters found "
        f"({_listed(candidates)}) can install; put another Python on PATH, or pin a version; uv "
        f"reported: {message}"
    )


def _explain_refusal(index: VersionIndex, request: Request) -> UserError | None:
    """Why the index did not answer; None if it did."""
    if any(answer.failure == "uncached" for answer in index.failures):
        return _no_network(request)
    refused = [answer.message for answer in index.failures if answer.failure == "other"]
    if not refused:
        return None
    return UserError(
        f"wanted {request}, but uv could not query the package index; correct uv's settings; "
        f"uv reported: {refused[0]}"
    )


def _no_network(request: Request) -> UserError:
    return UserError(
        f"wanted {request}, but the package index did not answer and uv's cache lacks the "
        "answer; connect to the network once, or use a Python that has it installed: "
        f" {request.framework}@system:/path/to/python"
    )


def _adopt(request: Request, python: str | None) -> Release:
    """The release that an interpreter has installed, without importing it."""
    looked: list[str] = []
    for path in _system_pythons(request):
        interpreter = inspect_interpreter(path)
        if python is not None and not f"{interpreter.version}.".startswith(f"{python}."):
            looked.append(f"{path} is Python {interpreter.version}")
            continue
        version = _installed_version(path, request.framework)
        if version is None:
            looked.append(f"{path} has no {request.framework}")
            continue
        return Release(
            framework=request.framework,
            version=version,
            role="system",
            python=interpreter.path,
            python_version=interpreter.version,
        )
    raise UserError(
        f"wanted {request}" + (f" on Python {python}" if python else "") + f", but "
        f"{' and '.join(looked) or 'no python3 is on PATH'} (user site-packages and PYTHONPATH do "
        f"not count); install it there, or choose a Python: {request.framework}@system:PATH"
    )


def _system_pythons(request: Request) -> list[Path]:
    if request.python is not None:
        return [request.python]
    on_path = shutil.which("python3")
    paths = [sys.executable, *([on_path] if on_path else [])]
    return [Path(path) for path in dict.fromkeys(paths)]


def _installed_version(python: Path, framework: Framework) -> str | None:
    code = (
        "import importlib.metadata as m, json\n"
        f"found = [d.version for d in m.distributions(name={framework!r})]\n"
        "print(json.dumps(found[:1]))"
    )
    try:
        found = query_python(python, code)
    except ValueError as error:
        raise UserError(f"wanted the {framework} of {str(python)!r}; {error}") from error
    return _version(str(found[0])) if found else None


def _version(text: str) -> str:
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise UserError(
            f"wanted a version such as 0.12.0, got {_shown(text)}; give one release's number"
        ) from error
    return str(version)


def _executable(text: str) -> Path:
    path = Path(text)
    try:
        path = path.expanduser()
        usable = path.is_absolute() and path.is_file() and os.access(path, os.X_OK)
    except (OSError, RuntimeError):
        usable = False
    if not usable:
        raise UserError(
            f"wanted the full path of a python executable, got {_shown(text)}, which is not one; "
            "check it with ls -l"
        )
    return path


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r} and {len(text) - 80} more characters"


def _listed(interpreters: list[Interpreter]) -> str:
    return ", ".join(each.version for each in interpreters) or "none"
