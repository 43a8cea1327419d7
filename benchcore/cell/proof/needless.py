"""Work that a step could leave out, which slows its own side: results that nothing uses, or that
the step already had. Values are known by what they hold, so it takes one run of the step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_ELEMENTS = 500_000_000
"""Elements that all operations of a followed step may move: a minute of one CPU."""
TOO_LARGE = "the step is too large to be followed"
CHOOSING = (
    "clamp", "dropout", "masked_fill", "max", "min", "select_n", "threshold_backward", "where"
)  # fmt: skip
"""Operations that choose between values. Where the choice is always the same their result was there
before, by the numbers of the case: they are not needless work, but what they don't choose is."""


class TooLargeError(Exception):
    """A step moves more elements than are followed."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of a step. A value is anything hashable that equal arrays share."""

    name: str
    reads: tuple[Hashable, ...]
    results: tuple[Hashable, ...]
    elements: int
    """Size of the largest array that it reads or writes; 0 = it moves none, as a view does."""
    call: object
    """Operations of one call are needless together."""
    updates: bool = False
    """Whether it changed what stood there before the step, such as one of many counters: needed
    also where others hold the same number."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The operations of a step, in order, and what it left."""

    operations: Sequence[Operation]
    needed: Collection[Hashable]
    """What it returned, and what it changed of what was there before."""
    overwritten: Collection[Hashable] = ()
    """What it wrote over where it stood first: a copy of that may be needed."""
    unusual: Sequence[str] = ()
    """Operations that no step of its kind needs."""


def describe_needless(record: Callable[[], Recorded]) -> dict[str, Any]:
    """What a result document holds as `effective.products.needless`: the shares of elements and of
    operations that are needless, and names."""
    recorded = record()
    needless = list_needless(recorded)
    moving = [each for each in recorded.operations if each.elements]
    total = sum(each.elements for each in moving)
    return {
        "elements": sum(each.elements for each in needless) / max(1, total),
        "operations": len(needless) / max(1, len(moving)),
        "names": sorted({each.name for each in needless}),
        "unusual": sorted(set(recorded.unusual)),
    }


def list_needless(recorded: Recorded) -> list[Operation]:
    """Those that move arrays, and whose results are not needed, neither themselves nor for what is,
    or had been read or computed before. What reads nothing may be created again."""
    known: set[Hashable] = set()
    new: list[set[Hashable]] = []
    for each in recorded.operations:
        known.update(each.reads)
        known.difference_update(recorded.overwritten)
        results = set(each.results)
        new.append(results - known if each.reads and not each.updates else results)
        known.update(results)
    wanted, live = set(recorded.needed), set()
    for each, results in zip(reversed(recorded.operations), reversed(new), strict=True):
        if results & wanted or each.call in live:
            wanted.update(each.reads)
            live.add(each.call)
    return [
        each
        for each in recorded.operations
        if each.elements and each.call not in live and not each.name.startswith(CHOOSING)
    ]
