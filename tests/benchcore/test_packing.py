"""Packing: every duel once, the most valuable first, one kind of GPU and one length a shard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchcore.packing import Parcel, pack

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


@given(_parcels())
def test_every_duel_is_in_one_shard(parcels: list[Parcel]) -> None:
    packed = [parcel for shard in pack(parcels, TARGET_S) for parcel in shard.parcels]
    assert sorted(packed, key=lambda each: int(each.duel_run)) == parcels


@given(_parcels())
def test_no_shard_is_too_long_but_for_a_duel_that_is(parcels: list[Parcel]) -> None:
    for shard in pack(parcels, TARGET_S):
        assert shard.expected_s <= TARGET_S or len(shard.parcels) == 1


@given(_parcels())
def test_a_shard_wants_one_kind_of_gpu(parcels: list[Parcel]) -> None:
    for shard in pack(parcels, TARGET_S):
        assert {parcel.pool for parcel in shard.parcels} == {shard.pool}


@given(_parcels())
def test_the_most_valuable_come_first(parcels: list[Parcel]) -> None:
    shards = pack(parcels, TARGET_S)
    for values in [
        [shard.parcels[0].value for shard in shards],
        *([parcel.value for parcel in shard.parcels] for shard in shards),
    ]:
        assert values == sorted(values, reverse=True)


@given(_parcels())
def test_no_shard_is_opened_while_an_earlier_one_has_room(parcels: list[Parcel]) -> None:
    shards = pack(parcels, TARGET_S)
    for place, shard in enumerate(shards):
        for earlier in shards[:place]:
            if earlier.pool == shard.pool:
                assert earlier.expected_s + shard.parcels[0].expected_s > TARGET_S


def test_equals_stay_in_the_order_of_the_plan() -> None:
    parcels = [
        Parcel(duel_run=name, pool="h100", expected_s=10, value=value)
        for name, value in [("a", 1), ("b", 2), ("c", 1), ("d", 2)]
    ]
    (shard,) = pack(parcels, TARGET_S)
    assert [parcel.duel_run for parcel in shard.parcels] == ["b", "d", "a", "c"]
