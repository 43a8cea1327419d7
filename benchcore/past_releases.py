"""Which past releases of a package can be installed on this machine: asked, never guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from benchcore.errors import UserError
from benchcore.interpreters import Interpreter
from benchcore.version_index import VersionIndex

_MOST_PASSED_OVER = 10
"""What so many releases in a row can't be installed for is no matter of the next one."""
_MOST_WORDS = 600


@dataclass(frozen=True, kw_only=True)
class Past:
    """Releases that can be installed here, the newest first; and of those between them that can't,
    what uv said."""

    found: tuple[str, ...]
    passed_over: Mapping[str, str]


def list_past(
    package: str,
    interpreters: Sequence[Interpreter],
    *,
    below: str | None = None,
    above: str | None = None,
    count: int,
) -> Past:
    """The highest releases below a version, or of all; fewer than `count` where there are no more.

    With `above`, every release between the two is looked at, however many can't be installed.
    Raises UserError where the index gives no answer.
    """
    index = VersionIndex(package)
    found: list[str] = []
    passed: dict[str, str] = {}
    while len(found) < count and (above or len(passed) < _MOST_PASSED_OVER):
        bounds = {"<": below, ">": above}
        specifier = ",".join(
            f"{sign}{Version(each).public}" for sign, each in bounds.items() if each
        )
        offers = {each: index.ask(specifier, each) for each in interpreters}
        below = max((each for each in offers.values() if each), key=Version, default=None)
        if below is None:
            check_answered(index, len(interpreters))
            break
        able = [each for each in interpreters if offers[each] == below]
        if index.installable(below, able) is None:
            check_answered(index, len(able))
            passed[below] = _shorten(index.failures[-1].message)
        else:
            found.append(below)
    return Past(found=tuple(found), passed_over=passed)


def check_answered(index: VersionIndex, num_asked: int) -> None:
    """That there is no such release is believed only of an index that said so. Raises UserError."""
    for each in index.failures[-num_asked:]:
        if each.failure != "unsatisfiable":
            raise UserError(
                f"wanted the releases of {index.framework}, but uv could not ask the package "
                f"index; mend uv's settings or the index; uv said: {_shorten(each.message)}"
            )


def find_older(package: str, version: str, interpreters: Sequence[Interpreter]) -> str:
    """The highest release below one that can be installed here. Raises UserError."""
    past = list_past(package, interpreters, below=version, count=1)
    if not past.found:
        told = "; ".join(f"{name}: {words}" for name, words in past.passed_over.items())
        raise UserError(
            f"wanted a release of {package} before {version}, but none can be installed here; put "
            f"an older Python on PATH; uv said: {told or 'nothing'}"
        )
    return past.found[0]


def _shorten(message: str) -> str:
    return " ".join(message.split())[:_MOST_WORDS]
