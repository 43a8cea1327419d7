"""A series goes on across a new condition, less what that condition moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_series import make_night

from benchcore.verdict.history.bridges import bridge_conditions
from benchcore.verdict.history.series import Night, Series, make_series
from benchcore.verdict.history.suspicions import suspect

NOISE = np.random.default_rng(1).normal(0, 0.004, 30)


def _nights(
    logs: Sequence[float] | np.ndarray, conditions: Mapping[str, tuple[int, str, str]]
) -> list[Night]:
    """`conditions` by name: the night since which its value is the second of these."""
    return [
        make_night(
            row,
            float(log),
            conditions={
                n: old if row < since else new for n, (since, old, new) in conditions.items()
            },
        )
        for row, log in enumerate(logs)
    ]


def _bridge(nights: Sequence[Night]) -> Series:
    kept, bridges = bridge_conditions(nights)
    return make_series(kept, bridges=bridges)


DRIVER = {"driver": (18, "570.1", "580.2")}


def test_a_driver_that_moves_nothing_leaves_the_nights_as_they_are() -> None:
    series = _bridge(_nights(NOISE, DRIVER))
    (bridge,) = series.bridges
    assert not bridge.applied
    assert bridge.low is not None and bridge.high is not None
    assert bridge.low < 0 < bridge.high
    assert "driver 570.1 to 580.2 on 2026-01-19 shows no effect that matters" in bridge.summary
    assert [night.log_ratio for night in series.nights] == NOISE.tolist()
    assert suspect(series) == ()


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 2), (0.5, 6)])
def test_noise_of_2_percent_is_rarely_bridged(correlation: float, most: int) -> None:
    """A false bridge would move all later nights. With intervals of 95 % it was 5 and 15 %."""
    rng, applied = np.random.default_rng(7), 0
    for _ in range(200):
        noise = rng.normal(0, 0.02, 40)
        for night in range(1, 40):
            own = math.sqrt(1 - correlation**2) * noise[night]
            noise[night] = correlation * noise[night - 1] + own
        applied += _bridge(_nights(noise, DRIVER)).bridges[0].applied
    assert applied <= most


def test_a_move_that_is_not_certain_is_not_called_none() -> None:
    noise = np.random.default_rng(4).normal(0, 0.02, 30)
    (bridge,) = _bridge(_nights(noise + 0.03 * (np.arange(30) >= 18), DRIVER)).bridges
    assert not bridge.applied and bridge.high is not None and bridge.high > 0.03
    assert "shows no effect that matters" in bridge.summary


def test_a_series_goes_on_across_a_driver_that_moves_it_and_names_the_driver() -> None:
    moved = NOISE + 0.05 * (np.arange(30) >= 18)
    series = _bridge(_nights(moved, DRIVER))
    (bridge,) = series.bridges
    assert bridge.applied
    assert bridge.log_ratio == pytest.approx(0.05, abs=0.005)
    assert bridge.low is not None and bridge.high is not None
    assert 0.04 < bridge.low < 0.05 < bridge.high < 0.06
    assert np.median(np.log(series.values[18:])) == pytest.approx(0.0, abs=0.003)
    assert (bridge.num_before, bridge.num_after) == (10, 10)
    (found,) = suspect(series)
    assert (found.trigger, found.since.number) == ("bridge", series.nights[18].number)
    assert found.ratio == pytest.approx(math.exp(0.05), abs=0.005)
    assert found.reason == bridge.summary


def test_a_shift_after_a_bridge_is_found_at_its_own_size() -> None:
    rows = np.arange(40)
    logs = np.random.default_rng(2).normal(0, 0.004, 40) + 0.05 * (rows >= 14)
    nights = _nights(logs + 0.04 * (rows >= 28), {"driver": (14, "570.1", "580.2")})
    found = {each.trigger: each for each in suspect(_bridge(nights))}
    assert set(found) == {"bridge", "shift"}
    assert found["shift"].ratio == pytest.approx(math.exp(0.04), abs=0.006)


def test_a_series_goes_on_across_a_method_and_waits_for_its_bridge() -> None:
    moved = NOISE + 0.10 * (np.arange(30) >= 18)
    nights = _nights(moved, {"METHOD": (18, "1", "2")})
    waiting = _bridge(nights[:20])
    assert len(waiting.nights) == 18
    assert "10 nights before and 2 after; 3 of each are needed" in waiting.bridges[0].summary
    series = _bridge(nights)
    assert len(series.nights) == 30
    assert series.bridges[0].log_ratio == pytest.approx(0.10, abs=0.005)
    assert suspect(series) == ()


def test_without_a_pair_that_stayed_a_new_method_begins_anew_and_a_driver_is_not_bridged() -> None:
    moved = NOISE + 0.10 * (np.arange(30) >= 18)
    for condition, left in (("METHOD", 12), ("driver", 30)):
        nights = _nights(moved, {condition: (18, "1", "2")})
        nights[18:] = [replace(night, a_environment="jax-2") for night in nights[18:]]
        series = _bridge(nights)
        assert len(series.nights) == left
        assert series.bridges[0].summary.endswith(
            "no two environments were measured on both sides of it"
        )


@pytest.mark.parametrize(
    ("release", "nights", "left"),
    [(16, 19, 1), (16, 30, 12), (19, 20, 18), (19, 22, 4), (19, 30, 12)],
    ids=["few nights before", "later", "may come again", "few nights after", "later"],
)
def test_nights_of_a_new_method_wait_only_while_their_pair_may_get_enough_nights(
    release: int, nights: int, left: int
) -> None:
    moved = NOISE + 0.10 * (np.arange(30) >= 18)
    given = _nights(moved, {"METHOD": (18, "1", "2")})
    given[release:] = [replace(night, a_environment="jax-2") for night in given[release:]]
    assert len(_bridge(given[:nights]).nights) == left


@pytest.mark.parametrize("num_odd", [1, 2])
def test_odd_nights_of_another_method_do_not_end_a_history(num_odd: int) -> None:
    """As where somebody measured with an older version of Dead Heat."""
    nights = _nights(NOISE + 0.10 * (np.arange(30) // num_odd == 12 // num_odd), {})
    of_method = [{"METHOD": "1" if row // num_odd == 12 // num_odd else "2"} for row in range(30)]
    nights = [
        replace(night, conditions=each) for night, each in zip(nights, of_method, strict=True)
    ]
    series = _bridge(nights)
    assert (len(series.nights), series.bridges, suspect(series)) == (30 - num_odd, (), ())
    ends_odd = _bridge(nights[: 12 + num_odd])
    assert len(ends_odd.nights) == 12


@pytest.mark.parametrize(
    ("since", "changed", "total"),
    [
        (19, {"METHOD": "3"}, {"METHOD": ("1", "3")}),
        (20, {"METHOD": "3"}, {"METHOD": ("1", "3")}),
        (20, {"driver": "580.2"}, {"METHOD": ("1", "2"), "driver": ("570.1", "580.2")}),
    ],
)
def test_a_change_soon_after_a_new_method_is_bridged_together_with_it(
    since: int, changed: dict[str, str], total: dict[str, tuple[str, str]]
) -> None:
    """One or two nights are too few for a bridge of their own."""
    rows = np.arange(30)
    logs = NOISE + 0.10 * (rows >= 18) + 0.05 * (rows >= since)
    nights = _nights(logs, {"METHOD": (18, "1", "2"), "driver": (30, "570.1", "")})
    nights[since:] = [
        replace(each, conditions={**each.conditions, **changed}) for each in nights[since:]
    ]
    series = _bridge(nights)
    assert len(series.nights) == 30 - (since - 18)
    (bridge,) = series.bridges
    assert bridge.log_ratio == pytest.approx(0.15, abs=0.01)
    assert {each.name: (each.old, each.new) for each in bridge.changes} == total
    assert suspect(series) == ()


def test_the_older_version_bridges_a_driver_that_came_with_a_release() -> None:
    """The release is 6 % and the driver 5 %: what stays in the series is the release."""
    nights = _nights(NOISE + 0.11 * (np.arange(30) >= 18), DRIVER)
    old = ("jax-1", "torch-2")
    nights[18:] = [
        replace(
            night,
            a_environment="jax-2",
            a="jax-2",
            controls={old: night.log_ratio - 0.06},
        )
        for night in nights[18:]
    ]
    series = _bridge(nights)
    assert series.bridges[0].pair == old
    assert series.bridges[0].log_ratio == pytest.approx(0.05, abs=0.005)
    assert np.median(np.log(series.values[18:])) == pytest.approx(0.06, abs=0.004)
    assert {each.trigger for each in suspect(series)} == {"bridge", "shift"}


def test_nodes_that_alternate_are_no_lasting_change() -> None:
    nights = [
        replace(night, conditions={"node": "ab"[row % 2]})
        for row, night in enumerate(_nights(NOISE, {}))
    ]
    assert _bridge(nights).bridges == ()


def test_the_interval_of_a_bridge_covers_the_truth() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        logs = rng.normal(0, 0.005, 20) + 0.03 * (np.arange(20) >= 10)
        (bridge,) = bridge_conditions(_nights(logs, {"driver": (10, "1", "2")}))[1]
        assert bridge.low is not None and bridge.high is not None
        covered += bridge.low <= 0.03 <= bridge.high
    assert covered >= 184
