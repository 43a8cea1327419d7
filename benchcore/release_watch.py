"""Which releases the package index has that were not there before, and what became of each.

The index is asked through uv, so that the user's settings, yanked releases and each release's needs
of Python count as they do for every environment. What was seen is kept in one file of the state
folder: a release that came while nobody watched is found by the next look, and none twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock
from packaging.version import Version

from benchcore.errors import UserError
from benchcore.interpreters import Interpreter
from benchcore.protocol import write_json
from benchcore.state import State
from benchcore.version_index import VersionIndex

COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "jax": ("jaxlib", "flax", "optax"),
    "torch": ("torchvision",),
}
"""What comes along in a framework's environment: a release of one is a reason to try again what
failed."""
WATCHED = tuple(each for name, others in COMPANIONS.items() for each in (name, *others))
MOST_TRIES = 3
_FIRST = 5
"""How many releases the first look takes for known; older ones are not watched."""
_MOST_WORDS = 600
Status = Literal["new", "sent", "done", "failed", "gone", "companion"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A release that appeared, and what became of it."""

    package: str
    version: str
    status: Status
    tries: int = 0
    """How often it was sent, or, where it is new, will have been before."""
    reason: str | None = None

    @property
    def key(self) -> str:
        """Of the flow run that measures it: asked for twice, there is one."""
        return f"deadheat-release-{self.package}-{self.version}-{self.tries}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look at the index found: what is to be measured, and what could not be asked."""

    new: tuple[Seen, ...]
    pending: tuple[Seen, ...]
    trouble: tuple[str, ...]


def look(state: State, interpreters: Sequence[Interpreter]) -> Look:
    """Ask the index for what is new. The first look takes all that is there for known."""
    with _locked(state) as document:
        new: list[Seen] = []
        trouble: list[str] = []
        for package in WATCHED:
            index = VersionIndex(package, prereleases=True, refresh=True)
            found = _find_new(index, document["packages"], interpreters)
            new += [_classify(package, version) for version in found]
            trouble += _tell_trouble(index)
        seen = [*_read_seen(document), *new]
        for each in (each for each in new if each.status == "companion"):
            seen = [_try_again(one, each) for one in seen]
        seen = [_check_offered(each, interpreters) for each in seen]
        _write_seen(document, seen)
        pending = tuple(each for each in seen if each.status == "new")
        return Look(new=tuple(new), pending=pending, trouble=tuple(trouble))


def list_seen(state: State) -> list[Seen]:
    """Every release that appeared since the first look."""
    with _locked(state) as document:
        return _read_seen(document)


def note(state: State, package: str, version: str, status: Status, reason: str = "") -> None:
    """Write down what became of a release."""
    with _locked(state) as document:
        seen = _read_seen(document)
        known = {(each.package, each.version) for each in seen}
        if (package, version) not in known:  # somebody asked for it by hand
            seen.append(Seen(package=package, version=version, status="new"))
        _write_seen(
            document,
            [
                dataclasses.replace(each, status=status, reason=reason[:_MOST_WORDS] or None)
                if (each.package, each.version) == (package, version)
                else each
                for each in seen
            ],
        )


def send_again(state: State, lost: Seen, reason: str) -> None:
    """A release whose flow run ended without a word: it is new again, unless tried too often."""
    with _locked(state) as document:
        tries = lost.tries + 1
        status: Status = "new" if tries < MOST_TRIES else "failed"
        again = dataclasses.replace(lost, status=status, tries=tries, reason=reason[:_MOST_WORDS])
        _write_seen(document, [again if each == lost else each for each in _read_seen(document)])


def _find_new(
    index: VersionIndex, packages: dict[str, Any], interpreters: Sequence[Interpreter]
) -> list[str]:
    """Versions that are not known yet, the lowest first; known from now on."""
    known = packages.get(index.framework)
    if known is None:
        first: list[str] = []
        while len(first) < _FIRST:
            below = f"<{first[-1]}" if first else ""
            version = _ask(index, below, interpreters)
            if version is None:
                break
            first.append(version)
        if first:
            packages[index.framework] = {"from": first[-1], "known": first}
        return []
    found: list[str] = []
    while True:
        others = [f"!={each}" for each in known["known"]]
        version = _ask(index, ",".join([f">={known['from']}", *others]), interpreters)
        if version is None or version in known["known"]:
            return sorted(found, key=Version)
        known["known"].append(version)
        found.append(version)


def _ask(index: VersionIndex, specifier: str, interpreters: Sequence[Interpreter]) -> str | None:
    """The highest version that any interpreter is offered."""
    offers = [index.ask(specifier, each) for each in interpreters]
    index.refresh = False  # once a look is enough
    return max((offer for offer in offers if offer), key=Version, default=None)


def _classify(package: str, version: str) -> Seen:
    status: Status = "new" if package in COMPANIONS else "companion"
    return Seen(package=package, version=version, status=status)


def _try_again(seen: Seen, companion: Seen) -> Seen:
    concerned = companion.package in COMPANIONS.get(seen.package, ())
    if seen.status != "failed" or not concerned:
        return seen
    return dataclasses.replace(seen, status="new", tries=seen.tries + 1)


def _check_offered(seen: Seen, interpreters: Sequence[Interpreter]) -> Seen:
    """What is still to be measured may have been withdrawn meanwhile: uv passes over what was
    yanked, unless it is asked for by `==`."""
    if seen.status != "new":
        return seen
    index = VersionIndex(seen.package, prereleases=True)
    if _ask(index, f">={seen.version},<={seen.version}", interpreters) is not None:
        return seen
    if _tell_trouble(index):
        return seen
    return dataclasses.replace(seen, status="gone", reason="the index offers it no more")


def _tell_trouble(index: VersionIndex) -> list[str]:
    told = [each.message for each in index.failures if each.failure != "unsatisfiable"]
    if index.offline and not told:
        told = ["the package index did not answer"]
    return [f"{index.framework}: {' '.join(told[0].split())[:_MOST_WORDS]}"] if told else []


def _read_seen(document: Mapping[str, Any]) -> list[Seen]:
    return [Seen(**each) for each in document["seen"]]


def _write_seen(document: dict[str, Any], seen: Sequence[Seen]) -> None:
    document["seen"] = [dataclasses.asdict(each) for each in seen]


@contextmanager
def _locked(state: State) -> Iterator[dict[str, Any]]:
    """The file's content, for one process at a time; written back whole when all went well."""
    path = state.root / "releases.json"
    with FileLock(f"{path}.lock"):
        document = _read(path)
        yield document
        write_json(path, document)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"schema": 1, "packages": {}, "seen": []}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _read_seen(document)
        if document["schema"] != 1 or not isinstance(document["packages"], dict):
            raise ValueError(f"schema {document['schema']!r}")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"wanted what the release watch wrote in {str(path)!r}, but "
            f"{type(error).__name__}: {error}; remove the file, and all that the index has now "
            "counts as known"
        ) from error
    return document
