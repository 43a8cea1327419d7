"""Finds work that a step could leave out and that slows its own side: results that nothing uses,
results that the step already had (also except for their last digits), and copies of its parameters.
Values are compared by their contents, so one run of the step is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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
    """One operation of a step. Its values are hashable keys; equal arrays have equal keys."""

    name: str
    reads: tuple[Hashable, ...]
    results: tuple[Hashable, ...]
    elements: int
    """Size of the largest array that it reads or writes; 0 = it moves none, as a view does."""
    call: object
    """Operations of one call are needless together."""
    copies: bool = False
    """Whether it only puts together what was there before the step, apart from its inputs."""
    updates: bool = False
    """Whether it changed what was there before the step, such as one of many counters: needed
    also where others hold the same number."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The operations of a step, in order, and what the step left."""

    operations: Sequence[Operation]
    needed: Collection[Hashable]
    """What it returned, and what it changed of what was there before."""
    overwritten: Collection[Hashable] = ()
    """Values that it overwrote in their first place: copies of these may be needed."""
    unusual: Sequence[str] = ()
    """Operations that no step of its kind needs."""
    near: Mapping[Hashable, Hashable] = field(default_factory=dict)
    """Values that differ from an earlier one in their last digits only, and that one."""
    single: Collection[Hashable] = ()
    """Single numbers. Two may be equal by chance, so such a result was there before only if its
    operation read it, or ran before."""


def describe_needless(record: Callable[[], Recorded]) -> dict[str, Any]:
    """`effective.products.needless` of a result document: the needless shares of elements and of
    operations, with their names."""
    recorded = record()
    needless = list_needless(recorded)
    moving = [each for each in recorded.operations if each.elements]
    total = sum(each.elements for each in moving)

    def share(operations: Collection[Operation]) -> float:
        return sum(each.elements for each in operations) / max(1, total)

    return {
        "elements": share(needless),
        "operations": len(needless) / max(1, len(moving)),
        "names": sorted({each.name for each in needless}),
        "nearly": share(list_needless(_merge_near(recorded))),
        "copies": share([each for each in moving if each.copies]),
        "unusual": sorted(set(recorded.unusual)),
    }


def _merge_near(recorded: Recorded) -> Recorded:
    """Treat values that differ only in their last digits as one. What the step left is excluded:
    one training step changes a parameter by as little."""

    left, near = set(recorded.needed), recorded.near

    def merge(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        return tuple(each if each in left else near.get(each, each) for each in values)

    operations = [
        replace(
            each,
            reads=merge(each.reads),
            results=each.results if each.updates else merge(each.results),
        )
        for each in recorded.operations
    ]
    return replace(recorded, operations=operations)


NEAR = 1e-5
"""How far two arrays are from each other, relative to their length, that differ in their last
digits only. Logits of two sides may differ as much."""
_FEWEST_COMPARED = 16
"""Elements. Single numbers, such as a variance with its epsilon, may be near others."""
_PART = 1 << 16
"""Elements that are projected at a time."""


class NearValues:
    """Finds values of a step that differ from an earlier one only in their last digits. Arrays are
    compared by their lengths and by projections on four fixed directions."""

    def __init__(self) -> None:
        self.found: dict[Hashable, Hashable] = {}
        self._seen: dict[Hashable, list[tuple[Hashable, tuple[float, ...]]]] = {}
        self._known: set[Hashable] = set()
        self._signs: np.ndarray | None = None

    def add(self, value: Hashable, kind: Hashable, read: Callable[[], np.ndarray]) -> None:
        """Compare a value with earlier ones of the same `kind`. `read` is called once per value."""
        if value in self._known:
            return
        self._known.add(value)
        array = read()
        if array.size < _FEWEST_COMPARED or array.dtype.kind != "f":
            return
        sketch = self._project(array.reshape(-1))
        earlier = self._seen.setdefault(kind, [])
        for other, its in earlier:
            if all(abs(a - b) <= NEAR * its[0] for a, b in zip(sketch, its, strict=True)):
                self.found[value] = self.found.get(other, other)
                break
        earlier.append((value, sketch))

    def _project(self, flat: np.ndarray) -> tuple[float, ...]:
        """The length and the projections of an array. Each part has its own weight, so the same
        parts in another order differ."""
        import numpy as np

        if self._signs is None:
            rng = np.random.Generator(np.random.PCG64(0))
            self._signs = rng.choice(np.array([-1, 1], np.float32), (4, _PART))
        sums, square = np.zeros(4), 0.0
        for place, begin in enumerate(range(0, flat.size, _PART)):
            part = flat[begin : begin + _PART].astype(np.float32)
            weights = np.cos(np.arange(1, 5) * place)
            sums += weights * (self._signs[:, : part.size] @ part)
            square += float(part @ part)
        return (math.sqrt(square), *sums.tolist())


def list_needless(recorded: Recorded) -> list[Operation]:
    """The operations that move arrays for nothing. Their results are not needed, directly or
    through others, or had been read or computed before. An operation that reads nothing may run
    again."""
    known: set[Hashable] = set()
    single, ran = set(recorded.single), set[Hashable]()
    new: list[set[Hashable]] = []
    for each in recorded.operations:
        known.update(each.reads)
        known.difference_update(recorded.overwritten)
        results, here = set(each.results), (each.name, each.reads)
        by_chance = set() if here in ran else (results & single).difference(each.reads)
        is_free = not each.reads or each.updates
        new.append(results if is_free else results - (known - by_chance))
        known.update(results)
        ran.add(here)
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
