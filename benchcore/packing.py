"""Packs duels into shards of a target length, most valuable first: one pure function."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A duel as packing sees it. `pool` is the kind of GPU that it wants; `guessed` tells that
    nothing like it was measured before, so that its seconds are only the plan's."""

    duel_run: str
    pool: str
    expected_s: float
    value: float
    guessed: bool = False


@dataclass
class Packed:
    """What goes into one allocation, in the order in which it is to be measured."""

    pool: str
    parcels: list[Parcel] = field(default_factory=list)

    def seconds_with(self, parcel: Parcel, lanes: int) -> float:
        """Seconds that it would take with this one, too."""
        return span((each.expected_s for each in [*self.parcels, parcel]), lanes)


def span(seconds: Iterable[float], lanes: int) -> float:
    """How long duels take of which `lanes` run side by side, each begun once there is room."""
    ends = [0.0] * lanes
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def pack(parcels: Iterable[Parcel], target_s: float, lanes: int = 1) -> list[Packed]:
    """Every parcel once, each into the first shard of its pool that has room for it; a shard
    measures `lanes` duels side by side.

    Shards, and the duels in each, begin with the most valuable. No shard is longer than
    `target_s`, but for one of a single duel that is too long by itself.
    """
    shards: list[Packed] = []
    for parcel in sorted(parcels, key=lambda each: -each.value):
        for shard in shards:
            fits = shard.seconds_with(parcel, lanes) <= target_s
            if shard.pool == parcel.pool and fits:
                break
        else:
            shard = Packed(parcel.pool)
            shards.append(shard)
        shard.parcels.append(parcel)
    return shards
