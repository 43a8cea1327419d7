"""Watches the package index for new releases, and records what became of each.

The index is queried through uv, so yanked releases and unsupported Pythons are ignored as for every
environment. The state folder's `releases.json` lists what was seen: a release that appeared while
nothing ran is found by the next check, and none is found twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from benchcore.environments.interpreters import Interpreter
from benchcore.environments.version_index import VersionIndex
from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.state import State, hold_lock

COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "jax": ("jaxlib", "flax", "optax"),
    "torch": ("torchvision",),
}
"""Packages that are installed with a framework. A new release of one is a reason to retry a failed
framework release."""
WATCHED = tuple(each for name, others in COMPANIONS.items() for each in (name, *others))
MAX_TRIES = 3
_FIRST = 5
"""How many releases the first check marks as known; older ones are ignored."""
_MAX_MESSAGE = 600
Status = Literal["new", "sent", "done", "failed", "gone", "companion"]


@dataclass(frozen=True, kw_only=True)
class WatchedRelease:
    """A release that appeared after the first check, and what became of it."""

    package: str
    version: str
    status: Status
    tries: int = 0
    """Attempts before the current one."""
    reason: str | None = None

    @property
    def key(self) -> str:
        """The idempotency key of the flow run that measures it."""
        return f"deadheat-release-{self.package}-{self.version}-{self.tries}"


@dataclass(frozen=True, kw_only=True)
class IndexCheck:
    """What one check found: new releases, those still to be measured, and failed queries."""

    new: tuple[WatchedRelease, ...]
    pending: tuple[WatchedRelease, ...]
    errors: tuple[str, ...]


def check_index(state: State, interpreters: Sequence[Interpreter]) -> IndexCheck:
    """Query the index for new releases. The first check marks all existing ones as known."""
    with _locked(state) as document:
        new: list[WatchedRelease] = []
        errors: list[str] = []
        for package in WATCHED:
            index = VersionIndex(package, prereleases=True, refresh=True)
            found = _find_new(index, document["packages"], interpreters)
            new += [_classify(package, version) for version in found]
            errors += _list_errors(index)
        seen = [*_read_seen(document), *new]
        for each in (each for each in new if each.status == "companion"):
            seen = [_try_again(one, each) for one in seen]
        seen = [_check_available(each, interpreters) for each in seen]
        _write_seen(document, seen)
        pending = tuple(each for each in seen if each.status == "new")
        return IndexCheck(new=tuple(new), pending=pending, errors=tuple(errors))


def list_watched(state: State) -> list[WatchedRelease]:
    """Every release that appeared since the first check."""
    with _locked(state) as document:
        return _read_seen(document)


def record_status(
    state: State, package: str, version: str, status: Status, reason: str = ""
) -> None:
    """Record what became of a release."""
    with _locked(state) as document:
        seen = _read_seen(document)
        known = {(each.package, each.version) for each in seen}
        if (package, version) not in known:  # started by hand
            seen.append(WatchedRelease(package=package, version=version, status="new"))
        _write_seen(
            document,
            [
                dataclasses.replace(each, status=status, reason=reason[:_MAX_MESSAGE] or None)
                if (each.package, each.version) == (package, version)
                else each
                for each in seen
            ],
        )


def retry_release(state: State, lost: WatchedRelease, reason: str) -> bool:
    """Retry a release whose flow run was lost; False, and nothing is recorded, after MAX_TRIES."""
    tries = lost.tries + 1
    if tries >= MAX_TRIES:
        return False
    with _locked(state) as document:
        again = dataclasses.replace(lost, status="new", tries=tries, reason=reason[:_MAX_MESSAGE])
        _write_seen(document, [again if each == lost else each for each in _read_seen(document)])
    return True


def _find_new(
    index: VersionIndex, packages: dict[str, Any], interpreters: Sequence[Interpreter]
) -> list[str]:
    """Versions that are not known yet, lowest first; marks them as known."""
    known = packages.get(index.framework)
    if known is None:
        first: list[str] = []
        while len(first) < _FIRST:
            below = f"<{first[-1]}" if first else ""
            version = _find_highest(index, below, interpreters)
            if version is None:
                break
            first.append(version)
        if first:
            packages[index.framework] = {"from": first[-1], "known": first}
        return []
    found: list[str] = []
    while True:
        others = [f"!={each}" for each in known["known"]]
        version = _find_highest(index, ",".join([f">={known['from']}", *others]), interpreters)
        if version is None or version in known["known"]:
            return sorted(found, key=Version)
        known["known"].append(version)
        found.append(version)


def _find_highest(
    index: VersionIndex, specifier: str, interpreters: Sequence[Interpreter]
) -> str | None:
    """The highest version for any interpreter."""
    offers = [index.query(specifier, each) for each in interpreters]
    index.refresh = False  # once per check is enough
    return max((offer for offer in offers if offer), key=Version, default=None)


def _classify(package: str, version: str) -> WatchedRelease:
    status: Status = "new" if package in COMPANIONS else "companion"
    return WatchedRelease(package=package, version=version, status=status)


def _try_again(seen: WatchedRelease, companion: WatchedRelease) -> WatchedRelease:
    concerned = companion.package in COMPANIONS.get(seen.package, ())
    if seen.status != "failed" or not concerned:
        return seen
    return dataclasses.replace(seen, status="new", tries=seen.tries + 1)


def _check_available(seen: WatchedRelease, interpreters: Sequence[Interpreter]) -> WatchedRelease:
    """Mark a pending release that the index has withdrawn. uv ignores yanked releases, except in a
    query with `==`."""
    if seen.status != "new":
        return seen
    index = VersionIndex(seen.package, prereleases=True)
    if _find_highest(index, f">={seen.version},<={seen.version}", interpreters) is not None:
        return seen
    if _list_errors(index):
        return seen
    return dataclasses.replace(seen, status="gone", reason="the index no longer has it")


def _list_errors(index: VersionIndex) -> list[str]:
    messages = [each.message for each in index.failures if each.failure != "unsatisfiable"]
    if index.offline and not messages:
        messages = ["the package index did not answer"]
    return (
        [f"{index.framework}: {' '.join(messages[0].split())[:_MAX_MESSAGE]}"] if messages else []
    )


def _read_seen(document: Mapping[str, Any]) -> list[WatchedRelease]:
    return [WatchedRelease(**each) for each in document["seen"]]


def _write_seen(document: dict[str, Any], seen: Sequence[WatchedRelease]) -> None:
    document["seen"] = [dataclasses.asdict(each) for each in seen]


@contextmanager
def _locked(state: State) -> Iterator[dict[str, Any]]:
    """The file's content, for one process at a time; written back if nothing was raised."""
    path = state.root / "releases.json"
    with hold_lock(Path(f"{path}.lock")):
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
            f"{type(error).__name__}: {error}; remove the file: the next check then "
            "marks all existing releases as known"
        ) from error
    return document
