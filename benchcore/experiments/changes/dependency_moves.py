"""Environments between two locks of one framework, with some packages moved from the old lock's
version to the new one's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from benchcore.environments.build import provision_locked
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.package_locks import (
    Accelerator,
    Lock,
    UnresolvableError,
    lock_pinned,
    lock_release,
    parse_lock,
)
from benchcore.environments.templates import load_template, template_folder
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.errors import EnvironmentBuildError, UserError, show
from benchcore.experiments.changes.suspicion_starts import LIKELY
from benchcore.experiments.rounds import RunContext
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duels import find_accelerator
from benchcore.running.sites import load_site
from benchcore.state import State
from benchcore.verdict.confirmation.dependency_search import Moved, name_state

_MOST_BYTES = 4 << 20
_MOST_WORDS = 600
_FIRST_REASON = re.compile(r"Because (.{1,300}?), we can conclude")
"""The beginning of uv's explanation: which package depends on which. The rest follows from it."""
_CONFLICT = re.compile(r"(\S+) depends on ([\w.-]+)(\S+) and \2==(\S+)")
"""A requirement of a package, and the version that we pinned."""
_MARKER = re.compile(r"\{[^{}]*\}")
"""Where a requirement holds, as uv writes it: `{sys_platform == 'linux'}`."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentPair:
    """Two environments of a framework: the packages of both, and how to make locks between them."""

    release: Release
    like: Lock
    old: Mapping[str, str]
    new: Mapping[str, str]
    accelerator: Accelerator

    @property
    def moves(self) -> tuple[str, ...]:
        """The packages that differ, the likeliest first, the framework itself last. A package that
        only one lock has is added with the package that needs it."""
        name = self.release.framework
        differing = [
            each for each in self.old if self.new.get(each, self.old[each]) != self.old[each]
        ]
        return tuple(
            sorted(differing, key=lambda each: (each == name, not LIKELY.search(each), each))
        )

    def pins(self, moved: Moved) -> dict[str, str]:
        """The version of every package of either environment after these moves."""
        return {**self.new, **self.old, **{name: self.new[name] for name in moved}}

    def release_of(self, moved: Moved) -> Release:
        """The framework's version after these moves."""
        version = Version(self.pins(moved)[self.release.framework])
        return replace(self.release, version=version.public)

    def lock(self, moved: Moved) -> Lock:
        """Raises UnresolvableError if these versions are incompatible."""
        release = self.release_of(moved)
        template = load_template(release.framework, template_folder()).add(release.extras)
        return lock_pinned(release, template, self.like, self.pins(moved))


def compare_ends(named: str, ends: tuple[str, str], context: RunContext) -> EnvironmentPair:
    """Read or make the locks of both ends of a framework (`torch`, `torch[opacus]`), each a version
    or the path of a lock. Raises UserError, also if no package differs."""
    framework = parse_request(named).framework
    site = load_site(context.site)
    accelerator = site.accelerator or find_accelerator()
    given = [_read_lock(framework, each) if is_lock(each) else None for each in ends]
    versions = [
        each if lock is None else lock[framework] for each, lock in zip(ends, given, strict=True)
    ]
    interpreters = find_interpreters()
    requests = [parse_request(f"{named}=={Version(each).public}") for each in versions]
    releases = [resolve(each, interpreters, python=context.python) for each in requests]
    template = load_template(framework, template_folder()).add(releases[-1].extras)
    locks = [lock_release(each, template, accelerator) for each in releases]
    old, new = (
        lock.packages if own is None else own for own, lock in zip(given, locks, strict=True)
    )
    found = EnvironmentPair(
        release=replace(releases[-1], role="pinned"),
        like=locks[-1],
        old=old,
        new=new,
        accelerator=accelerator,
    )
    if not found.moves:
        raise UserError(
            f"wanted two locks of {framework} that differ in the version of a package, got "
            f"{ends[0][:100]!r} and {ends[1][:100]!r} with equal versions; compare settings with "
            "`deadheat compare`"
        )
    return found


def is_lock(end: str) -> bool:
    """Whether an end is a lock's path and not a version."""
    return end.endswith((".lock", ".txt"))


def _read_lock(framework: str, end: str) -> dict[str, str]:
    path = Path(end)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large for a lock")
        packages = parse_lock(path.read_text(encoding="utf-8"))
        for version in packages.values():
            Version(version)
    except (OSError, ValueError, InvalidVersion) as error:
        raise UserError(
            f"wanted a lock, such as `requirements.lock` in an environment's folder, got "
            f"{show(path)}: {error!s:.200}; name another file"
        ) from error
    if framework not in packages:
        raise UserError(
            f"wanted a lock with {framework}, got {show(path)}, which has {len(packages)} packages "
            "but not that one; name another file"
        )
    return packages


def make_refusal_check(pair: EnvironmentPair) -> Callable[[Moved], str | None]:
    """Returns a cached function: why the resolver refuses these moves; None = it resolves them.

    Raises UserError if the package index doesn't answer: that is not a refusal.
    """
    known: dict[Moved, str | None] = {}

    def check(moved: Moved) -> str | None:
        if moved not in known:
            known[moved] = _query_resolver(pair, moved)
        return known[moved]

    return check


def _query_resolver(pair: EnvironmentPair, moved: Moved) -> str | None:
    try:
        pair.lock(moved)
    except UnresolvableError as error:
        explanation = " ".join(str(error).partition("uv reported: ")[2].split())
        return _shorten(explanation, pair.pins(moved))
    except EnvironmentBuildError as error:
        raise UserError(
            f"wanted to know whether {name_state(moved)} can be changed, but uv could not resolve "
            f"it; correct uv's settings; uv reported: {error!s:.600}"
        ) from error
    return None


def _shorten(explanation: str, pins: Mapping[str, str]) -> str:
    """`jax==0.10.1 requires jaxlib==0.10.1`: the first reason, without our own pin."""
    explanation = _MARKER.sub("", explanation)
    first = _FIRST_REASON.search(explanation)
    if first is None:
        return explanation[:_MOST_WORDS]
    conflict = _CONFLICT.fullmatch(first[1])
    if conflict is None or pins.get(conflict[2]) != conflict[4]:
        return first[1]
    return f"{conflict[1]} requires {conflict[2]}{conflict[3]}"


def build(
    pair: EnvironmentPair, moved: Moved, state: State, report: Callable[[str], None]
) -> EnvironmentRecord:
    """The environment after these moves. Raises EnvironmentBuildError and UserError."""
    return provision_locked(
        pair.release_of(moved),
        pair.lock(moved),
        state,
        accelerator=pair.accelerator,
        report=report,
    )
