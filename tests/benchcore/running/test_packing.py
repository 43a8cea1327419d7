"""Packing: every duel once, the most valuable first, one kind of GPU and one length a shard."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchcore.running.packing import PackedShard, PackingItem, pack, span

TARGET_S = 100.0


@st.composite
def _items(draw: st.DrawFn) -> list[PackingItem]:
    number = draw(st.integers(0, 30))
    return [
        PackingItem(
            duel_run=str(place),
            pool=draw(st.sampled_from(["h100", "h200"])),
            expected_s=draw(st.floats(0, 250)),
            value=draw(st.integers(0, 5)),
        )
        for place in range(number)
    ]


@settings(deadline=None)
@given(_items())
def test_every_duel_is_in_one_shard(items: list[PackingItem]) -> None:
    packed = [item for shard in pack(items, TARGET_S) for item in shard.items]
    assert sorted(packed, key=lambda each: int(each.duel_run)) == items


@settings(deadline=None)
@given(_items())
def test_only_a_single_long_duel_exceeds_the_length_of_a_shard(items: list[PackingItem]) -> None:
    for shard in pack(items, TARGET_S):
        assert _seconds(shard) <= TARGET_S or len(shard.items) == 1


@settings(deadline=None)
@given(_items())
def test_a_shard_requests_one_kind_of_gpu(items: list[PackingItem]) -> None:
    for shard in pack(items, TARGET_S):
        assert {item.pool for item in shard.items} == {shard.pool}


@settings(deadline=None)
@given(_items())
def test_the_most_valuable_come_first(items: list[PackingItem]) -> None:
    shards = pack(items, TARGET_S)
    for values in [
        [shard.items[0].value for shard in shards],
        *([item.value for item in shard.items] for shard in shards),
    ]:
        assert values == sorted(values, reverse=True)


@settings(deadline=None)
@given(_items())
def test_no_shard_is_opened_while_an_earlier_one_has_room(items: list[PackingItem]) -> None:
    shards = pack(items, TARGET_S)
    for place, shard in enumerate(shards):
        for earlier in shards[:place]:
            if earlier.pool == shard.pool:
                assert _seconds(earlier) + shard.items[0].expected_s > TARGET_S


def test_duels_of_equal_priority_stay_in_the_order_of_the_plan() -> None:
    items = [
        PackingItem(duel_run=name, pool="h100", expected_s=10, value=value)
        for name, value in [("a", 1), ("b", 2), ("c", 1), ("d", 2)]
    ]
    (shard,) = pack(items, TARGET_S)
    assert [item.duel_run for item in shard.items] == ["b", "d", "a", "c"]


def test_duels_side_by_side_share_a_shards_time() -> None:
    items = [PackingItem(duel_run=str(n), pool="h100", expected_s=40, value=0) for n in range(9)]
    assert [len(shard.items) for shard in pack(items, TARGET_S, gpus=2)] == [4, 4, 1]
    assert span([60, 50, 40, 10], 2) == 90


def test_duels_on_several_gpus_have_shards_of_their_own() -> None:
    items = [
        PackingItem(duel_run=f"{n}", pool="h100", expected_s=40, value=-n, devices=1 + n % 2)
        for n in range(8)
    ]
    shards = pack(items, TARGET_S, gpus=2)
    assert [(each.devices, len(each.items)) for each in shards] == [(1, 4), (2, 2), (2, 2)]


def _seconds(shard: PackedShard) -> float:
    return sum(item.expected_s for item in shard.items)
