"""Packing: every duel once, the most valuable first, one kind of GPU and one length a shard."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchcore.packing import Packed, Parcel, pack, span

TARGET_S = 100.0


@st.composite
def _parcels(draw: st.DrawFn) -> list[Parcel]:
    number = draw(st.integers(0, 30))
    return [
        Parcel(
            duel_run=str(place),
            pool=draw(st.sampled_from(["h100", "h200"])),
            expected_s=draw(st.floats(0, 250)),
            value=draw(st.integers(0, 5)),
        )
        for place in range(number)
    ]


@settings(deadline=None)
@given(_parcels())
def test_every_duel_is_in_one_shard(parcels: list[Parcel]) -> None:
    packed = [parcel for shard in pack(parcels, TARGET_S) for parcel in shard.parcels]
    assert sorted(packed, key=lambda each: int(each.duel_run)) == parcels


@settings(deadline=None)
@given(_parcels())
def test_no_shard_is_too_long_but_for_a_duel_that_is(parcels: list[Parcel]) -> None:
    for shard in pack(parcels, TARGET_S):
        assert _seconds(shard) <= TARGET_S or len(shard.parcels) == 1


@settings(deadline=None)
@given(_parcels())
def test_a_shard_wants_one_kind_of_gpu(parcels: list[Parcel]) -> None:
    for shard in pack(parcels, TARGET_S):
        assert {parcel.pool for parcel in shard.parcels} == {shard.pool}


@settings(deadline=None)
@given(_parcels())
def test_the_most_valuable_come_first(parcels: list[Parcel]) -> None:
    shards = pack(parcels, TARGET_S)
    for values in [
        [shard.parcels[0].value for shard in shards],
        *([parcel.value for parcel in shard.parcels] for shard in shards),
    ]:
        assert values == sorted(values, reverse=True)


@settings(deadline=None)
@given(_parcels())
def test_no_shard_is_opened_while_an_earlier_one_has_room(parcels: list[Parcel]) -> None:
    shards = pack(parcels, TARGET_S)
    for place, shard in enumerate(shards):
        for earlier in shards[:place]:
            if earlier.pool == shard.pool:
                assert _seconds(earlier) + shard.parcels[0].expected_s > TARGET_S


def test_equals_stay_in_the_order_of_the_plan() -> None:
    parcels = [
        Parcel(duel_run=name, pool="h100", expected_s=10, value=value)
        for name, value in [("a", 1), ("b", 2), ("c", 1), ("d", 2)]
    ]
    (shard,) = pack(parcels, TARGET_S)
    assert [parcel.duel_run for parcel in shard.parcels] == ["b", "d", "a", "c"]


def test_duels_side_by_side_share_a_shards_time() -> None:
    parcels = [Parcel(duel_run=str(n), pool="h100", expected_s=40, value=0) for n in range(9)]
    assert [len(shard.parcels) for shard in pack(parcels, TARGET_S, lanes=2)] == [4, 4, 1]
    assert span([60, 50, 40, 10], 2) == 90


def _seconds(shard: Packed) -> float:
    return sum(parcel.expected_s for parcel in shard.parcels)
