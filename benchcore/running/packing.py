"""Packs duels into allocations: by length, pool and GPUs, the most valuable first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PackingItem:
    """A duel to be packed. `pool` is the pool it needs; `guessed`: nothing like it was measured
    before, so its seconds are the plan's."""

    duel_run: str
    pool: str
    expected_s: float
    value: float
    guessed: bool = False
    devices: int = 1
    """GPUs that it uses."""


@dataclass
class PackedShard:
    """The duels of one allocation, in the order of measuring."""

    pool: str
    devices: int = 1
    items: list[PackingItem] = field(default_factory=list)

    def seconds_with(self, item: PackingItem, slots: int) -> float:
        """The seconds of this shard with one more duel."""
        return span((each.expected_s for each in [*self.items, item]), slots)


def span(seconds: Iterable[float], slots: int) -> float:
    """The seconds that duels take with `slots` side by side, each started when a slot is free."""
    ends = [0.0] * slots
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def count_slots(gpus: int, devices: int) -> int:
    """How many duels an allocation measures side by side."""
    return max(1, gpus // devices)


def pack(items: Iterable[PackingItem], target_s: float, gpus: int = 1) -> list[PackedShard]:
    """Put every duel into the first shard of its pool and number of devices that has room for it.
    A shard measures as many duels side by side as `gpus` suffice for.

    Shards, and the duels in each, are sorted by value, highest first. No shard is longer than
    `target_s`, except one with a single duel that is longer by itself.
    """
    shards: list[PackedShard] = []
    for item in sorted(items, key=lambda each: -each.value):
        for shard in shards:
            fits = shard.seconds_with(item, count_slots(gpus, item.devices)) <= target_s
            if (shard.pool, shard.devices) == (item.pool, item.devices) and fits:
                break
        else:
            shard = PackedShard(item.pool, item.devices)
            shards.append(shard)
        shard.items.append(item)
    return shards


def assign_nodes(nodes: Sequence[str], num: int) -> list[tuple[str, ...]]:
    """The nodes that each of `num` allocations excludes, so that no two share a node. With fewer
    nodes than allocations each gets one node, evenly distributed."""
    num_groups = min(num, len(nodes))
    return [
        tuple(node for index, node in enumerate(nodes) if index % num_groups != each % num_groups)
        for each in range(num)
    ]
