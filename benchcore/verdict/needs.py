"""Whether a workaround is still needed: what became of each version, by its newest run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version


@dataclass(frozen=True, kw_only=True)
class Life:
    """How one contender of a version ended in one duel; every duel begins without a cure."""

    version: str
    status: str
    climbed: bool
    """Whether it crashed as crash ladders are for."""


def tell_needs(lives: Iterable[Life]) -> str:
    """`needed with 0.10.1, no longer with 0.10.2`: of one case and arm, given oldest first.

    A version that needed it in some of its runs only says on how many. Whoever ended otherwise
    (out of memory, late) says nothing of the crash.
    """
    ends: dict[str, list[str]] = {}
    for life in lives:
        end = _end(life)
        if end:
            ends.setdefault(life.version, []).append(end)
    said = {version: ends[version][-1] for version in sorted(ends, key=Version)}
    needing = [version for version, word in said.items() if word != "not needed"]
    parts: list[str] = []
    for word, versions in _in_runs(said):
        if word == "not needed" and needing and Version(versions[0]) > Version(needing[-1]):
            word = "no longer"
        named = " and ".join(_name(version, ends[version]) for version in versions)
        parts.append(f"{word} with {named}")
    return ", ".join(parts) or "not told"


def _end(life: Life) -> str | None:
    if life.climbed:
        return "needed" if life.status == "workaround" else "nothing helps"
    return "not needed" if life.status == "ok" else None


def _in_runs(said: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Neighbouring versions of which the same is said."""
    runs: list[tuple[str, list[str]]] = []
    for version, word in said.items():
        if runs and runs[-1][0] == word:
            runs[-1][1].append(version)
        else:
            runs.append((word, [version]))
    return runs


def _name(version: str, ends: Sequence[str]) -> str:
    """`0.10.1`, or `0.10.1 (in 2 of 3 runs)` where they differed."""
    same = sum(1 for each in ends if each == ends[-1])
    return version if same == len(ends) else f"{version} (in {same} of {len(ends)} runs)"
