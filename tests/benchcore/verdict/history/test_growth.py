"""A confirmed change whose level moves further the same way grows; it is not a second change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_series import make_night

from benchcore.verdict.history.detect import detect_series, detect_shifts
from benchcore.verdict.history.growth import OpenChange
from benchcore.verdict.history.matching import (
    State,
    StoredSuspicion,
    list_explained,
    list_growing,
    reconcile,
)
from benchcore.verdict.history.series import Series, make_series
from benchcore.verdict.history.suspicions import Suspicion, suspect

STEP = math.log(1.05)
FIRST = make_night(0, 0.0).number


def _series(logs: Sequence[float]) -> Series:
    return make_series([make_night(number, log) for number, log in enumerate(logs)])


def _noise(count: int, seed: int = 1, deviation: float = 0.005) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, count)


def _two_steps(count: int, second: float = STEP) -> Series:
    nights = np.arange(count)
    return _series((_noise(count) + STEP * (nights >= 20) + second * (nights >= 24)).tolist())


def _drift(count: int) -> Series:
    ramp = np.clip((np.arange(count) - 15) / 60, 0, 1)
    return _series((_noise(count) + math.log(1.08) * ramp).tolist())


def _store(found: Suspicion, state: State = "confirmed", *, number: int = 1) -> StoredSuspicion:
    return StoredSuspicion(
        id=number,
        trigger=found.trigger,
        number=found.since.number,
        ratio=found.ratio,
        state=state,
        compared=(found.before.number, found.after.number),
        may_grow=state == "confirmed",
    )


def _suspect(series: Series, known: Sequence[StoredSuspicion]) -> list[Suspicion]:
    """Those that are new or open again."""
    found = suspect(series, None, None, list_explained(known), list_growing(known))
    return [each.found for each in reconcile(found, known) if each.found]


@pytest.mark.parametrize("apart", [3, 4, 6])
def test_a_shift_in_two_steps_names_both(apart: int) -> None:
    nights = np.arange(40)
    logs = _noise(40) + STEP * (nights >= 20) + STEP * (nights >= 20 + apart)
    (shift,) = detect_shifts(np.exp(logs)).shifts
    assert [row for row, _ in shift.steps] == pytest.approx([20, 20 + apart], abs=1)
    assert [size for _, size in shift.steps] == pytest.approx([1.05, 1.05], abs=0.01)
    (found,) = suspect(_series(logs.tolist()))
    assert found.before.number < FIRST + 20 and found.after.number >= FIRST + 20 + apart


def test_a_shift_in_one_step_and_one_that_turns_back_have_no_steps() -> None:
    nights = np.arange(40)
    for second in (0.0, -STEP / 2):
        logs = _noise(40) + STEP * (nights >= 20) + second * (nights >= 26)
        assert [each.steps for each in detect_shifts(np.exp(logs)).shifts if each.steps] == []


def test_a_second_step_after_a_confirmed_one_is_suspected_as_a_whole_and_once() -> None:
    (first,) = suspect(_two_steps(23))
    known = [_store(first)]
    early = [each for count in (24, 25) for each in _suspect(_two_steps(count), known)]
    assert [each.grows for each in early if each.trigger != "edge"] == []
    (whole,) = _suspect(_two_steps(27), known)
    assert (whole.before, whole.grows) == (first.before, first.after.number)
    assert whole.since.number == FIRST + 24
    assert whole.ratio == pytest.approx(1.05**2, abs=0.01)
    assert "% since the confirmed change of 2026-01-23: +" in whole.reason
    assert whole.reason.endswith("% in all")
    known.append(_store(whole, number=2))
    assert [_suspect(_two_steps(count), known) for count in range(28, 50)] == [[]] * 22


@pytest.mark.parametrize("apart", [3, 6])
def test_a_release_soon_after_a_change_of_the_machine_is_no_growth_of_it(apart: int) -> None:
    """It was confirmed for itself; together they are one shift in two steps. If that were growth,
    too, it would take the release's place, which would be confirmed again."""
    release, count = 20 + apart, 45
    nights = [
        make_night(row, float(log), "12"[row >= release])
        for row, log in enumerate(
            _noise(count) + STEP * (np.arange(count) >= 20) + STEP * (np.arange(count) >= release)
        )
    ]
    of_machine = StoredSuspicion(
        id=1,
        trigger="shift",
        number=FIRST + 20,
        ratio=1.05,
        state="confirmed",
        compared=(FIRST + 17, FIRST + 22),
        may_grow=True,
    )
    of_release = replace(of_machine, id=2, number=FIRST + release, may_grow=False)
    of_release = replace(of_release, compared=(FIRST + release - 1, FIRST + release))
    (shift,) = detect_series(make_series(nights)).shifts
    assert len(shift.steps) == 2
    for until in range(release + 3, count):
        found = _suspect(make_series(nights[:until]), [of_machine, of_release])
        assert [each for each in found if each.trigger == "shift"] == []


@pytest.mark.parametrize("second", [0.0, -STEP / 2])
def test_a_confirmed_change_that_stays_or_turns_back_does_not_grow(second: float) -> None:
    (first,) = suspect(_two_steps(23))
    for count in range(27, 40):
        found = _suspect(_two_steps(count, second), [_store(first)])
        assert [each for each in found if each.grows is not None] == []


def test_a_drift_that_goes_on_is_measured_from_its_first_anchor() -> None:
    known = list[StoredSuspicion]()
    wholes = list[Suspicion]()
    for count in range(20, 90):
        for found in _suspect(_drift(count), known):
            if found.trigger != "drift":
                known.append(_store(found, "refuted", number=len(known) + 1))
                continue
            wholes.append(found)
            old = [replace(each, may_grow=False) for each in known]  # its event is that of the last
            known = [*old, _store(found, number=len(known) + 1)]
    first, *later = wholes
    assert (first.trigger, first.grows) == ("drift", None) and later
    assert {each.before.number for each in later} == {first.before.number}
    assert all(each.grows is not None for each in later)
    ratios = [each.ratio for each in wholes]
    assert ratios == sorted(ratios) and ratios[-1] == pytest.approx(1.07, abs=0.012)


def test_a_drift_the_other_way_or_of_a_closed_event_is_one_of_its_own() -> None:
    series = _drift(75)
    day = series.nights[30].number
    explained = [(day, day)]
    (alone,) = suspect(series, None, None, explained)
    assert (alone.trigger, alone.grows) == ("drift", None)
    for ratio, grows in ((1.03, day), (0.97, None)):
        change = OpenChange(before=FIRST, after=day, ratio=ratio, anchor=FIRST)
        (found,) = suspect(series, None, None, explained, [change])
        assert found.grows == grows


def test_a_shift_before_a_drift_is_measured_from_the_nights_before_it() -> None:
    series = _drift(70)
    before, after = series.nights[24].number, series.nights[30].number
    change = OpenChange(before=before, after=after, ratio=1.02)
    (found,) = suspect(series, None, detect_series(series), [(before, after)], [change])
    assert found.before.number == before and found.since.number == FIRST + 15
