from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from tiny_series import KEY, make_night

from benchcore.errors import UserError
from benchcore.verdict.history.detect import Detection
from benchcore.verdict.history.series import Series, make_series
from benchcore.verdict.history.suspicions import suspect
from benchcore.verdict.history.thresholds import SeriesScale


def _series(logs: Sequence[float], version_since: int | None = None) -> Series:
    nights = [
        make_night(
            number, log, "2" if version_since is not None and number >= version_since else "1"
        )
        for number, log in enumerate(logs)
    ]
    return make_series(nights)


def _noise(count: int, seed: int = 1, deviation: float = 0.005) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, count)


def test_a_series_is_sorted_and_the_last_run_of_a_date_counts() -> None:
    again = replace(make_night(1, 0.5), at=datetime(2026, 1, 2, 9, tzinfo=UTC), duel_run="f" * 16)
    series = make_series([again, make_night(1, 0.1), make_night(0, 0.2)])
    assert series.values == pytest.approx([math.exp(0.2), math.exp(0.5)])
    assert np.diff(series.numbers).tolist() == [1]
    assert series.list_rows() == {f"{0:016x}": 0, f"{1:016x}": 1, "f" * 16: 1}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"device_fingerprint": "1" * 16}, "device_fingerprint '0000000000000000' and '1111"),
        ({"control": "previous"}, "control None and 'previous'"),
        ({"checkpoint": "c" * 64, "track": "tuned"}, "checkpoint None and 'cccc"),
    ],
)
def test_runs_of_several_series_are_refused(other: dict[str, object], words: str) -> None:
    other_night = replace(make_night(1, 0.0), key=replace(KEY, **other))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="wanted nights of one series") as refused:
        make_series([make_night(0, 0.0), other_night])
    assert words in str(refused.value)


@pytest.mark.parametrize("log", [math.nan, math.inf])
def test_a_night_without_a_number_is_refused(log: float) -> None:
    with pytest.raises(UserError, match="wanted a ratio in every night"):
        make_series([make_night(0, 0.0), make_night(1, log)])
    with pytest.raises(UserError, match="got none"):
        make_series([])


def test_a_shift_is_suspected_once_where_it_begins() -> None:
    logs = _noise(40)
    logs[30:] += 0.05
    (found,) = suspect(_series(logs))
    assert found.trigger == "shift"
    assert abs(found.since.number - make_night(30, 0).number) <= 1
    # Wherever it is placed, these two nights are on either side of it.
    assert found.before.number < make_night(30, 0).number <= found.after.number
    assert found.low is not None and found.high is not None
    assert found.low < math.exp(0.05) < found.high


def test_an_outlier_in_the_last_night_is_an_edge_and_no_shift() -> None:
    logs = _noise(40)
    logs[-1] += 0.1
    (found,) = suspect(_series(logs))
    assert (found.trigger, found.since) == ("edge", found.after)
    assert (found.before.number, found.since.number) == tuple(
        make_night(n, 0).number for n in (38, 39)
    )


def test_quiet_nights_and_few_nights_raise_no_suspicion() -> None:
    assert suspect(_series(_noise(40))) == ()
    assert suspect(_series([0.0, 0.3])) == ()


@pytest.mark.parametrize(("move", "triggers"), [(0.03, ["version"]), (0.01, [])])
def test_a_version_is_suspected_at_once_if_it_came_with_a_move(
    move: float, triggers: list[str]
) -> None:
    """Four nights are too few for a history to show anything."""
    series = _series([0.0, 0.001, -0.001, move], version_since=3)
    found = suspect(series)
    assert [each.trigger for each in found] == triggers
    for each in found:
        assert each.reason == "jax-jit-2 came with a change of +3.0 %"


def _drive(series: Series, since: int) -> Series:
    """The same nights, with another driver from row `since` on."""
    nights = [
        replace(night, conditions={"driver": "570.1" if row < since else "580.2"})
        for row, night in enumerate(series.nights)
    ]
    return make_series(nights)


@pytest.mark.parametrize(("move", "triggers"), [(0.03, ["condition"]), (0.01, [])])
def test_a_series_goes_on_under_a_new_driver_which_is_suspected_if_it_came_with_a_move(
    move: float, triggers: list[str]
) -> None:
    series = _drive(_series([0.0, 0.001, -0.001, move]), since=3)
    assert len(series.nights) == 4
    found = suspect(series)
    assert [each.trigger for each in found] == triggers
    for each in found:
        assert each.reason == "driver 570.1 to 580.2 came with a change of +3.0 %"


def test_a_release_and_a_condition_of_the_same_night_are_both_named() -> None:
    (found,) = suspect(_drive(_series([0.0, 0.001, -0.001, 0.03], version_since=3), since=3))
    assert found.trigger == "version"
    assert found.reason == (
        "jax-jit-2 came with a change of +3.0 %; changed meanwhile: driver 570.1 to 580.2"
    )


@pytest.mark.parametrize(("since", "named"), [(30, True), (10, False)])
def test_a_shift_names_the_conditions_that_changed_with_it_and_no_others(
    since: int, named: bool
) -> None:
    logs = _noise(40)
    logs[30:] += 0.05
    (found,) = suspect(_drive(_series(logs), since))
    assert found.trigger == "shift"
    assert found.reason.endswith("changed meanwhile: driver 570.1 to 580.2") is named


def test_a_version_needs_a_move_beyond_what_the_series_spreads() -> None:
    """The same 3 % is much for a quiet series, and nothing for a loud one."""
    for deviation, triggers in ((0.003, ["version"]), (0.05, [])):
        logs = deviation * np.tile([-1.0, 0.0, 1.0, 0.0], 3)[:9]
        logs[8] = 0.03
        assert [each.trigger for each in suspect(_series(logs, version_since=8))] == triggers


def _wobble(count: int, deviation: float) -> np.ndarray:
    """Independent nights without an outlier, whose median and deviation don't depend on luck."""
    return deviation * np.tile([-1.2, 0.8, 0.2, -0.4, 1.1, -0.6], count)[:count]


@pytest.mark.parametrize(
    ("deviation", "nights", "reasons"),
    [
        (0.02, 3, ["jax-jit-2 came with a change of +1.4 %; these nights don't exclude 3 %"]),
        (0.02, 2, []),
        (0.003, 3, []),
    ],
    ids=["hidden by noise", "two nights are too few", "excluded"],
)
def test_a_release_is_suspected_until_the_nights_exclude_what_matters(
    deviation: float, nights: int, reasons: list[str]
) -> None:
    logs = np.append(_wobble(30, deviation), np.full(nights, 0.6 * deviation))
    found = suspect(_series(logs, version_since=30))
    assert [each.reason for each in found] == reasons
    assert {each.trigger for each in found} <= {"version"}


def test_nights_need_not_exclude_a_change_of_a_driver_or_of_another_metric() -> None:
    """A driver can't be measured again, and the night of a release times each compilation."""
    logs = np.append(_wobble(30, 0.02), np.full(3, 0.012))
    assert suspect(_drive(_series(logs), since=30)) == ()
    nights = [
        replace(each, key=replace(each.key, metric="compile_s"))
        for each in _series(logs, version_since=30).nights
    ]
    assert suspect(make_series(nights)) == ()


def test_a_version_is_compared_with_the_nights_since_the_last_shift() -> None:
    logs = _noise(40, deviation=0.002)
    logs[25:] += 0.05
    assert [each.trigger for each in suspect(_series(logs, version_since=38))] == ["shift"]


def test_a_release_near_a_change_lies_between_the_nights_that_are_compared() -> None:
    """Otherwise an outlier after the release would compare the new environment with itself."""
    logs = _noise(40)
    logs[-1] += 0.1
    (found,) = suspect(_series(logs, version_since=36))
    assert (found.trigger, found.since.number) == ("edge", make_night(39, 0).number)
    assert found.before.number == make_night(35, 0).number


def test_two_nights_at_a_new_level_are_an_edge_and_three_a_shift() -> None:
    logs = _noise(43)
    logs[40:] += 0.1
    assert [each.trigger for each in suspect(_series(logs[:42]))] == ["edge"]
    assert [each.trigger for each in suspect(_series(logs))] == ["shift"]


def test_a_version_that_history_already_shows_is_suspected_once() -> None:
    logs = _noise(40)
    logs[30:] += 0.05
    assert [each.trigger for each in suspect(_series(logs, version_since=30))] == ["shift"]


def test_a_release_before_a_shift_is_not_suspected_of_it() -> None:
    """The nights from the shift on are no evidence about the release some nights earlier."""
    logs = _noise(40) + 0.05 * (np.arange(40) >= 36)
    found = suspect(_series(logs, version_since=34))
    assert [each.trigger for each in found] == ["shift"]
    confirmed = (make_night(33, 0).number, make_night(38, 0).number)
    again = suspect(_series(logs, version_since=34), explained=[confirmed])
    assert [each.trigger for each in again] == ["shift"]


def _creep(count: int = 90, total: float = 0.04) -> np.ndarray:
    return _noise(count) + np.linspace(0, total, count)


def test_a_slow_drift_is_suspected_against_its_baseline() -> None:
    (found,) = suspect(_series(_creep()))
    assert (found.trigger, found.since.number) == ("drift", make_night(0, 0).number)
    assert found.after.number == make_night(89, 0).number
    assert found.ratio == pytest.approx(math.exp(0.04), abs=0.01)
    assert suspect(_series(_creep(total=0.01))) == ()


def test_a_drift_is_counted_from_the_last_confirmed_change() -> None:
    """The confirmed change is part of the way since the first night, and no news."""
    logs = np.append(np.zeros(20), 0.02 + 0.012 * np.arange(100) / 99)
    logs += 0.002 * np.tile([-1.0, 1.0], 60)
    confirmed = (make_night(18, 0).number, make_night(22, 0).number)
    series = _series(logs)
    assert "drift" in {each.trigger for each in suspect(series, found=Detection())}
    assert suspect(series, found=Detection(), explained=[confirmed]) == ()


def test_a_drift_that_cancels_an_older_one_is_suspected_too() -> None:
    """Against the baseline there is nothing to see: what was won is lost again."""
    away = np.interp(np.arange(120), [0, 60, 119], [0, -0.05, 0])
    (found,) = suspect(_series(_noise(120) + away, version_since=60))
    assert (found.trigger, found.since.number) == ("drift", make_night(60, 0).number)
    assert found.reason.endswith("since the last release")
    assert suspect(_series(_noise(120) + away)) == ()
    away = np.interp(np.arange(500), [0, 90, 499], [0, -0.05, 0])
    (found,) = suspect(_series(_noise(500) + away))
    assert found.since.at.date().isoformat() == "2026-04-01"
    assert found.ratio == pytest.approx(math.exp(0.05), abs=0.01)
    assert suspect(_series(_noise(500) + away), baseline=make_night(300, 0).number) == ()


def test_only_an_accepted_shift_moves_the_baseline() -> None:
    """Earlier changes are no longer suspected, and drift is counted from then on."""
    logs = _noise(60)
    logs[30:] += 0.05
    series = _series(logs)
    assert [each.trigger for each in suspect(series)] == ["shift"]
    assert suspect(series, baseline=make_night(30, 0).number) == ()
    creeping = _series(_creep())
    assert suspect(creeping, baseline=make_night(60, 0).number) == ()
    assert [each.trigger for each in suspect(creeping, make_night(5, 0).number)] == ["drift"]


@pytest.mark.parametrize(("least", "found"), [(2.0, 1), (2.5, 0)])
def test_a_count_must_also_move_by_its_smallest_amount(least: float, found: int) -> None:
    counts = [(400.0 + 2 * (number >= 20), 380.0) for number in range(40)]
    nights = [
        replace(make_night(number, math.log(b / a)), values=(a, b))
        for number, (a, b) in enumerate(counts)
    ]
    scale = SeriesScale(smallest=0.0, smallest_count=least)
    assert len(suspect(make_series(nights, scale))) == found


def test_what_matters_depends_on_the_scale() -> None:
    logs = np.random.default_rng(3).normal(0, 0.002, 40) + 0.04 * (np.arange(40) >= 20)
    nights = make_series([make_night(number, log) for number, log in enumerate(logs)]).nights
    assert len(suspect(make_series(nights))) == 1
    assert suspect(make_series(nights, SeriesScale(smallest=0.05))) == ()


def test_a_scale_with_more_noise_needs_more_nights_of_a_small_shift() -> None:
    logs = np.random.default_rng(3).normal(0, 0.002, 40) + 0.04 * (np.arange(40) >= 36)
    nights = make_series([make_night(number, log) for number, log in enumerate(logs)]).nights
    assert suspect(make_series(nights, SeriesScale(smallest=0.01, noise_floor=0.03))) == ()
    assert suspect(make_series(nights, SeriesScale(smallest=0.01, noise_floor=0.002))) != ()
