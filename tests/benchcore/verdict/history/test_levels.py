from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.levels import (
    SuspectedNights,
    find_longest_spell,
    measure_levels,
    measure_spread,
)
from benchcore.verdict.history.series import Night, Series, SeriesKey, make_series

_FIRST = datetime(2026, 1, 1, 3, tzinfo=UTC)


def _series(logs: np.ndarray) -> Series:
    names = ("workload", "case_name", "track", "a_arm", "b_arm", "device_fingerprint")
    key = SeriesKey(**dict.fromkeys(names, "x"))
    nights = [
        Night(
            key=key,
            at=_FIRST + timedelta(days=number),
            duel_run=str(number),
            log_ratio=float(log),
            a="a",
            b="b",
            a_environment="a",
            b_environment="b",
        )
        for number, log in enumerate(logs)
    ]
    return make_series(nights)


def _logs() -> np.ndarray:
    logs = np.random.default_rng(3).normal(0, 0.005, 60)
    logs[20:] += 0.10
    logs[50:] += 0.04
    return logs


SHIFT = SuspectedNights(trigger="shift", before="47", since="50", after="52")


def test_the_level_before_begins_at_the_last_shift() -> None:
    found = measure_levels(_series(_logs()), SHIFT)
    assert (found.num_before, found.num_after) == (28, 10)
    assert found.before == pytest.approx(0.10, abs=0.003)
    assert found.after == pytest.approx(0.14, abs=0.004)
    assert found.spread == pytest.approx(0.005, rel=0.35)
    assert found.since == pytest.approx(_logs()[50:])


def test_a_drift_compares_the_nights_at_its_anchor_with_the_last_ones() -> None:
    logs = np.linspace(0, 0.06, 60)
    nights = SuspectedNights(trigger="drift", before="0", since="0", after="59")
    found = measure_levels(_series(logs), nights)
    assert (found.num_before, found.num_after) == (10, 10)
    assert found.before == pytest.approx(float(np.median(logs[:10])))
    assert found.after == pytest.approx(float(np.median(logs[-10:])))


def test_nights_of_a_slow_drift_are_not_correlated_by_it_and_wandering_ones_are() -> None:
    """Else the machine is blamed weeks after its drift matters."""
    drift = SuspectedNights(trigger="drift", before="0", since="0", after="119")
    noise = np.random.default_rng(3).normal(0, 0.005, 120)
    ramp = 0.06 * np.clip((np.arange(120) - 30) / 80, 0, 1)
    assert measure_levels(_series(ramp + noise), drift).correlation < 0.3
    wander = np.convolve(noise, 0.8 ** np.arange(30))[:120]
    assert measure_levels(_series(wander), drift).correlation > 0.6


def test_a_release_alone_does_not_test_the_machine() -> None:
    nights = SuspectedNights(trigger="version", before="49", since="50", after="50")
    assert measure_levels(_series(_logs()), nights).spread is None


def test_the_spread_counts_a_second_mode_and_hardly_an_outlier() -> None:
    noise = np.random.default_rng(4).normal(0, 0.005, 200)
    spiked = noise.copy()
    spiked[::50] += 0.3
    assert measure_spread(noise) == pytest.approx(0.005, rel=0.1)
    assert measure_spread(spiked) == pytest.approx(0.006, rel=0.15)
    assert measure_spread(noise + 0.02 * (np.arange(200) % 3 == 0)) > 0.01  # type: ignore[operator]
    assert measure_spread(noise[:2]) is None


def test_correlated_nights_carry_less_information() -> None:
    rng = np.random.default_rng(5)
    logs = rng.normal(0, 0.005, 60)
    for night in range(1, 60):
        logs[night] = 0.7 * logs[night - 1] + 0.7 * logs[night]
    nights = SuspectedNights(trigger="shift", before="54", since="57", after="59")
    assert measure_levels(_series(logs), nights).share(5) > 0.4
    plain = measure_levels(_series(rng.normal(0, 0.005, 60)), nights)
    assert plain.share(5) == pytest.approx(0.2, abs=0.1)


def test_noise_that_grew_in_the_last_nights_sets_the_spread() -> None:
    logs = np.random.default_rng(8).normal(0, 0.005, 60)
    logs[40:] *= 4
    logs[54:] += 0.04
    nights = SuspectedNights(trigger="shift", before="51", since="54", after="56")
    spread = measure_levels(_series(logs), nights).spread
    assert spread is not None and spread > 0.014


def test_a_level_that_was_left_without_a_release_is_a_spell() -> None:
    noise = np.random.default_rng(9).normal(0, 0.003, 60)
    rows = np.arange(60)
    spells = noise + 0.04 * ((rows >= 20) & (rows < 27)) + 0.04 * (rows == 40)
    assert find_longest_spell(spells, 0.0, 0.04) == 7
    assert find_longest_spell(spells, 0.0, -0.04) == 0
    first = noise - 0.04 * (rows < 30)
    assert find_longest_spell(first, 0.0, -0.04) == 30
    assert find_longest_spell(first, 0.0, -0.04, releases=[32]) == 0
    assert find_longest_spell(noise, 0.0, 0.04) == 0
    assert find_longest_spell(spells[:4], 0.0, 0.04) == 0


def _return(nights_there: int, *, ended: int = 40, level: float = 0.04, first: int = 0) -> int:
    """For how many nights the new level is known, of a series at it from night 60 on, and for the
    first nights."""
    logs = np.random.default_rng(11).normal(0, 0.005, 66)
    logs[60:] += 0.04
    logs[ended - nights_there : ended] += level
    logs[:first] += level
    nights = SuspectedNights(trigger="shift", before="58", since="60", after="62")
    return measure_levels(_series(logs), nights).known


def test_a_level_is_known_if_the_series_was_certainly_there_before() -> None:
    assert (_return(0), _return(6)) == (0, 0)  # an incident hides no change
    assert (_return(7), _return(30)) == (7, 30)
    assert _return(4, first=4) == 8
    assert _return(7, level=0.022) == 0  # too far from the new level
    assert _return(8, ended=57) == 0  # noise may have split one change in two


def test_noise_near_the_new_level_makes_it_no_known_one() -> None:
    """A shift of one and a half standard deviations: nights beyond half of it are common."""
    known = 0
    for seed in range(40):
        logs = np.random.default_rng(seed).normal(0, 0.02, 66)
        logs[60:] += 0.03
        nights = SuspectedNights(trigger="shift", before="58", since="60", after="62")
        known += measure_levels(_series(logs), nights).known > 0
    assert known <= 1


def test_conditions_of_all_nights_since_and_of_none_before_are_named() -> None:
    series = _series(_logs())
    nodes = ["n1" if row < 50 else "n2" for row in range(60)]

    def find(nodes: list[str]) -> str:
        nights = [
            replace(night, conditions={"node": node, "driver": "570"})
            for night, node in zip(series.nights, nodes, strict=True)
        ]
        return describe_changes(measure_levels(make_series(nights), SHIFT).changes)

    assert find(nodes) == "node n1 to n2"
    assert find([*nodes[:10], "n2", *nodes[11:]]) == "node n1 to n2"  # of an earlier level
    assert find([*nodes[:30], "n2", *nodes[31:]]) == ""
    assert find([*nodes[:57], "n1", "n2", "n2"]) == ""


def test_only_nights_with_the_new_environments_show_the_new_level() -> None:
    series = _series(_logs())
    nights = [
        night if row < 55 else replace(night, b_environment="b2")
        for row, night in enumerate(series.nights)
    ]
    since = measure_levels(make_series(nights), SHIFT).since
    assert since == pytest.approx([*_logs()[50:55], _logs()[59]])


def test_two_modes_have_one_level_however_many_nights_are_at_either() -> None:
    """The median of a few nights may be at one mode, that of many at the other."""
    logs = np.random.default_rng(10).normal(0, 0.004, 60)
    logs[:30][::5] += 0.03
    logs[:30][1::5] += 0.03
    logs[30:][np.arange(30) % 5 < 3] += 0.03
    nights = SuspectedNights(trigger="shift", before="29", since="30", after="59")
    assert measure_levels(_series(logs), nights).before == pytest.approx(0.012, abs=0.003)


def test_a_bridged_level_is_new_although_the_series_goes_on_across_it() -> None:
    """Its nights have what the condition moved taken from them, so they look like those before."""
    logs = np.random.default_rng(3).normal(0, 0.005, 60)
    nights = [
        replace(night, bridged=0.05 if row >= 50 else 0.0)
        for row, night in enumerate(_series(logs).nights)
    ]
    bridge = SuspectedNights(trigger="bridge", before="49", since="50", after="50")
    assert measure_levels(make_series(nights), bridge).longest_spell == 0
    logs[20:30] += 0.05  # there it was before
    nights = [replace(night, log_ratio=float(log)) for night, log in zip(nights, logs, strict=True)]
    found = measure_levels(make_series(nights), bridge)
    assert (found.longest_spell, found.known) == (10, 10)


def test_a_driver_that_comes_back_returns_to_a_known_level() -> None:
    """The nights under the other driver have its effect taken from them, too."""
    logs = np.random.default_rng(3).normal(0, 0.005, 60)
    bridge = SuspectedNights(trigger="bridge", before="49", since="50", after="50")
    for methods, known in ((["1"] * 60, 40), (["1"] * 40 + ["2"] * 20, 0)):
        nights = [
            replace(
                night,
                bridged=0.05 if 40 <= row < 50 else 0.0,
                conditions={"METHOD": methods[row]},
            )
            for row, night in enumerate(_series(logs).nights)
        ]
        assert measure_levels(make_series(nights), bridge).known == known


def test_a_bridge_beside_a_release_is_of_the_environments_before_it() -> None:
    """A driver moved the old environments by 5 %, and a release took as much from the ratio."""
    logs = np.random.default_rng(8).normal(0.2, 0.003, 40)
    nights = list(_series(logs - 0.05 * (np.arange(40) >= 20)).nights)
    for row in range(20, 40):
        held = {("a", "b"): float(logs[row]) + 0.05}
        released = replace(nights[row], a_environment="new", bridged=0.05, controls=held)
        nights[row] = released
    suspected = SuspectedNights(trigger="bridge", before="19", since="20", after="22")
    found = measure_levels(make_series(nights), suspected).without_bridges(0.05, 0.05)
    assert (found.before, found.after) == pytest.approx((0.2, 0.25), abs=0.003)
    assert found.since == pytest.approx(logs[20:] + 0.05)
    assert (found.longest_spell, found.known) == (0, 0)
