"""What the user's package index offers of one package to each interpreter, as uv answers it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from benchcore.interpreters import Interpreter
from benchcore.uv_command import UvAnswer, run_uv, run_uv_or_cached

_LATEST_KNOWN_MINOR = 14
"""Releases that need a newer Python than any found are looked for up to this 3.x, at least."""


@dataclass(frozen=True)
class Found:
    """A version, and the interpreter that can install it."""

    version: str
    interpreter: Interpreter


@dataclass
class VersionIndex:
    """Asks uv; after the first contact that failed, only uv's cache, and remembers that it did."""

    framework: str
    """The package's name, as the index knows it."""
    offline: bool = False
    prereleases: bool = False
    """Whether release candidates and the like are offered, too."""
    refresh: bool = False
    """Whether uv asks the index again, however lately it did: with conditional requests, so that
    what has not changed is not sent again."""
    failures: list[UvAnswer] = field(default_factory=list)

    def ask(
        self,
        specifier: str,
        interpreter: Interpreter,
        *,
        python_version: str | None = None,
        dependencies: bool = False,
    ) -> str | None:
        """The version uv picks for that interpreter (or for another Python version), or None."""
        arguments = ["pip", "compile", "-", "--python", str(interpreter.path), "--no-build"]
        arguments += ["--quiet", "--no-header", "--no-annotate", "--no-sources"]
        arguments += ["--python-version", python_version] if python_version else []
        arguments += [] if dependencies else ["--no-deps"]
        arguments += ["--offline"] if self.offline else []
        arguments += ["--prerelease", "allow"] if self.prereleases else []
        arguments += ["--refresh-package", self.framework] if self.refresh else []
        ask = run_uv if self.offline else run_uv_or_cached
        answer = ask(arguments, stdin=f"{self.framework}{specifier}\n")
        self.offline = self.offline or answer.offline
        if answer.failure is not None:
            self.failures.append(answer)
            return None
        pin = re.search(rf"^{self.framework}==(\S+)", answer.output, re.MULTILINE)
        return pin[1] if pin else None

    def highest(self, specifier: str, candidates: Sequence[Interpreter]) -> Found | None:
        """The highest version that any interpreter can install, dependencies included."""
        offers = {each: self.ask(specifier, each) for each in candidates}
        versions = sorted({offer for offer in offers.values() if offer}, key=Version, reverse=True)
        for version in versions:
            able = [each for each in candidates if offers[each] == version]
            found = self.installable(version, able)
            if found is not None:
                return found
        return None

    def installable(self, version: str, candidates: Sequence[Interpreter]) -> Found | None:
        """The first interpreter with wheels for that version and for all that it needs."""
        for each in candidates:
            version_there = self.ask(f"=={version}", each, dependencies=True)
            if version_there is not None:
                return Found(version_there, each)
        return None

    def newest_for_later_pythons(self, interpreter: Interpreter) -> str | None:
        """The highest version for Python versions after the interpreter's."""
        first = interpreter.release[1] + 1
        minors = range(first, max(first, _LATEST_KNOWN_MINOR) + 1)
        offers = [self.ask("", interpreter, python_version=f"3.{minor}") for minor in minors]
        return max((offer for offer in offers if offer), key=Version, default=None)
