"""Packs duels into shards of a target length, most valuable first: one pure function."""

from __future__ import annotations

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

    @property
    def expected_s(self) -> float:
        """Seconds that it will take, as far as that is known."""
        return sum(parcel.expected_s for parcel in self.parcels)


def pack(parcels: Iterable[Parcel], target_s: float) -> list[Packed]:
    """Every parcel once, each into the first shard of its pool that has room for it.

    Shards, and the duels in each, begin with the most valuable. No shard is longer than
    `target_s`, but for one of a single duel that is too long by itself.
    """
    shards: list[Packed] = []
    for parcel in sorted(parcels, key=lambda each: -each.value):
        for shard in shards:
            fits = shard.expected_s + parcel.expected_s <= target_s
            if shard.pool == parcel.pool and fits:
                break
        else:
            shard = Packed(parcel.pool)
            shards.append(shard)
        shard.parcels.append(parcel)
    return shards
