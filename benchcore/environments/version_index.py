"""Which versions of a package the user's index has for each Python here, queried through uv."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from benchcore.environments.interpreters import Interpreter
from benchcore.environments.uv_command import UvAnswer, run_uv, run_uv_or_cached
from benchcore.errors import UserError

_LATEST_KNOWN_MINOR = 14
"""Releases that need a newer Python than any found are searched up to this 3.x, at least."""
_MAX_SKIPPED = 10
"""After this many releases that can't be installed, the search for older ones stops."""
_MAX_MESSAGE = 600


@dataclass(frozen=True)
class InstallableVersion:
    """A version, and the interpreter that can install it."""

    version: str
    interpreter: Interpreter


@dataclass(frozen=True)
class LaterPythonVersion:
    """A version for Pythons newer than any found, and the lowest of them, such as `3.12`."""

    version: str
    python: str


@dataclass
class VersionIndex:
    """Queries uv. After the first failed contact it queries only uv's cache, and is `offline`."""

    framework: str
    """The package's name, as the index knows it."""
    offline: bool = False
    prereleases: bool = False
    """Whether prereleases count too."""
    refresh: bool = False
    """Whether uv queries the index again, however recently it did. Requests are conditional: an
    unchanged page is not downloaded again."""
    failures: list[UvAnswer] = field(default_factory=list)

    def query(
        self,
        specifier: str,
        interpreter: Interpreter,
        *,
        python_version: str | None = None,
        dependencies: bool = False,
    ) -> str | None:
        """The version that uv picks for an interpreter (or for another Python version), or None."""
        arguments = ["pip", "compile", "-", "--python", str(interpreter.path), "--no-build"]
        arguments += ["--quiet", "--no-header", "--no-annotate", "--no-sources"]
        arguments += ["--python-version", python_version] if python_version else []
        arguments += [] if dependencies else ["--no-deps"]
        arguments += ["--offline"] if self.offline else []
        arguments += ["--prerelease", "allow"] if self.prereleases else []
        arguments += ["--refresh-package", self.framework] if self.refresh else []
        run = run_uv if self.offline else run_uv_or_cached
        answer = run(arguments, stdin=f"{self.framework}{specifier}\n")
        self.offline = self.offline or answer.offline
        if answer.failure is not None:
            self.failures.append(answer)
            return None
        pin = re.search(rf"^{self.framework}==(\S+)", answer.output, re.MULTILINE)
        return pin[1] if pin else None

    def find_highest(
        self, specifier: str, candidates: Sequence[Interpreter]
    ) -> InstallableVersion | None:
        """The highest version that any candidate can install with its dependencies."""
        offers = {each: self.query(specifier, each) for each in candidates}
        versions = sorted({offer for offer in offers.values() if offer}, key=Version, reverse=True)
        for version in versions:
            able = [each for each in candidates if offers[each] == version]
            found = self.find_installable(version, able)
            if found is not None:
                return found
        return None

    def find_installable(
        self, version: str, candidates: Sequence[Interpreter]
    ) -> InstallableVersion | None:
        """The first candidate with wheels for that version and for its dependencies."""
        for each in candidates:
            version_there = self.query(f"=={version}", each, dependencies=True)
            if version_there is not None:
                return InstallableVersion(version_there, each)
        return None

    def find_newest_for_later_pythons(self, interpreter: Interpreter) -> LaterPythonVersion | None:
        """The highest version for Python versions newer than the interpreter's."""
        first = interpreter.release[1] + 1
        minors = range(first, max(first, _LATEST_KNOWN_MINOR) + 1)
        offers = {
            f"3.{minor}": self.query("", interpreter, python_version=f"3.{minor}")
            for minor in minors
        }
        newest = max((offer for offer in offers.values() if offer), key=Version, default=None)
        if newest is None:
            return None
        return LaterPythonVersion(
            newest, next(minor for minor, offer in offers.items() if offer == newest)
        )


@dataclass(frozen=True, kw_only=True)
class PastReleases:
    """Releases that can be installed here, newest first, and uv's messages for those between them
    that can't."""

    found: tuple[str, ...]
    skipped: Mapping[str, str]


def list_past_releases(
    package: str,
    interpreters: Sequence[Interpreter],
    *,
    below: str | None = None,
    above: str | None = None,
    count: int,
) -> PastReleases:
    """The highest `count` releases, below a version if given; fewer if there are no more.

    With `above`, every release between the two is examined, however many can't be installed.
    Raises UserError if the index does not answer.
    """
    index = VersionIndex(package)
    found: list[str] = []
    skipped: dict[str, str] = {}
    while len(found) < count and (above or len(skipped) < _MAX_SKIPPED):
        bounds = {"<": below, ">": above}
        specifier = ",".join(
            f"{sign}{Version(each).public}" for sign, each in bounds.items() if each
        )
        offers = {each: index.query(specifier, each) for each in interpreters}
        below = max((each for each in offers.values() if each), key=Version, default=None)
        if below is None:
            check_answered(index, len(interpreters))
            break
        able = [each for each in interpreters if offers[each] == below]
        if index.find_installable(below, able) is None:
            check_answered(index, len(able))
            skipped[below] = _shorten(index.failures[-1].message)
        else:
            found.append(below)
    return PastReleases(found=tuple(found), skipped=skipped)


def check_answered(index: VersionIndex, num_queries: int) -> None:
    """Raises UserError unless the last queries failed because there is no such release."""
    for each in index.failures[-num_queries:]:
        if each.failure != "unsatisfiable":
            raise UserError(
                f"wanted the releases of {index.framework}, but uv could not query the package "
                f"index; correct uv's settings; uv reported: {_shorten(each.message)}"
            )


def find_previous_release(package: str, version: str, interpreters: Sequence[Interpreter]) -> str:
    """The highest release below `version` that can be installed here. Raises UserError."""
    past = list_past_releases(package, interpreters, below=version, count=1)
    if not past.found:
        reasons = "; ".join(f"{name}: {message}" for name, message in past.skipped.items())
        raise UserError(
            f"wanted a release of {package} before {version}, but none can be installed here; put "
            f"an older Python on PATH; uv reported: {reasons or 'nothing'}"
        )
    return past.found[0]


def _shorten(message: str) -> str:
    return " ".join(message.split())[:_MAX_MESSAGE]
