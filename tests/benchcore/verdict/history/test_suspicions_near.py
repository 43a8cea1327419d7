"""Suspicions near a change that was answered before: after an accepted level, a machine's spell or
an answered shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_series import make_night

from benchcore.verdict.history.bridges import bridge_conditions
from benchcore.verdict.history.detect import Detection, Shift
from benchcore.verdict.history.matching import StoredSuspicion, list_explained, reconcile
from benchcore.verdict.history.series import Series, make_series
from benchcore.verdict.history.suspicions import suspect

FIRST = make_night(0, 0.0).number


def _series(logs: Sequence[float] | np.ndarray, releases: Sequence[int] = ()) -> Series:
    """The next version of JAX came in each of these nights."""
    return make_series(
        make_night(row, float(log), str(1 + sum(row >= each for each in releases)))
        for row, log in enumerate(logs)
    )


def _noise(count: int, deviation: float = 0.005) -> np.ndarray:
    return np.random.default_rng(1).normal(0, deviation, count)


def _shown(*shifts: tuple[int, float]) -> Detection:
    return Detection(
        shifts=tuple(
            Shift(index=row, before=1.0, after=ratio, ratio=ratio, low=ratio, high=ratio)
            for row, ratio in shifts
        )
    )


def _known(number: int, days: tuple[int, int], state: str, ratio: float) -> StoredSuspicion:
    return StoredSuspicion(
        id=7,
        trigger="shift",
        number=FIRST + number,
        ratio=ratio,
        state=state,  # type: ignore[arg-type]
        compared=(FIRST + days[0], FIRST + days[1]),
    )


@pytest.mark.parametrize(
    ("releases", "accepted", "rows"),
    [
        ((50, 53), 50, [53]),
        ((50,), 50, []),  # nothing came with it: the place of the accepted change is not certain
        ((50, 53), 53, []),
    ],
)
def test_a_release_soon_after_an_accepted_change_is_suspected(
    releases: Sequence[int], accepted: int, rows: Sequence[int]
) -> None:
    nights = np.arange(70)
    series = _series(_noise(70) + 0.05 * ((nights >= 50) & (nights < 53)), releases)
    shown = _shown((50, 1.05), (53, 0.95))
    found = suspect(series, FIRST + accepted, shown, [(FIRST + 47, FIRST + 52)])
    assert [each.since.number - FIRST for each in found] == rows


@pytest.mark.parametrize("second", [0.05, 0.1])
def test_a_release_in_whose_night_there_is_an_edge_is_not_compared_by_a_shift_before(
    second: float,
) -> None:
    """The machine changed two nights before; both would name the release as the culprit."""
    nights = np.arange(23)
    series = _series(_noise(23, 0.002) + 0.05 * (nights >= 20) + second * (nights >= 22), [22])
    shift, edge = suspect(series)
    assert (shift.trigger, shift.since.number, edge.trigger) == ("shift", FIRST + 20, "edge")
    assert shift.before.environments == shift.after.environments
    assert edge.before.environments != edge.after.environments


@pytest.mark.parametrize(("accepted", "triggers"), [(None, ["bridge"]), (15, ["bridge"]), (18, [])])
@pytest.mark.parametrize("again", [False, True], ids=["once", "measured twice"])
def test_a_driver_is_suspected_unless_its_own_level_was_accepted(
    accepted: int | None, triggers: Sequence[str], again: bool
) -> None:
    nights = [
        make_night(row, log + 0.05 * (row >= 18), conditions={"driver": "12"[row >= 18]})
        for row, log in enumerate(_noise(30, 0.004).tolist())
    ]
    if again:
        nights.append(replace(nights[18], at=nights[18].at.replace(hour=9), duel_run="f" * 16))
    kept, bridges = bridge_conditions(nights)
    series = make_series(kept, bridges=bridges)
    found = suspect(series, None if accepted is None else FIRST + accepted)
    assert [each.trigger for each in found] == triggers
    assert {each.since.number - FIRST for each in found} <= {18}


def test_a_drift_after_a_spell_of_the_machine_is_suspected() -> None:
    """The return is refuted, as the machine was there before; drift is measured from it on."""
    nights = np.arange(160)
    spell = 0.05 * ((nights >= 50) & (nights < 65))
    series = _series(_noise(160) + spell + np.interp(nights, [80, 159], [0.0, -0.06]))
    shown = _shown((50, 1.05), (65, 0.95))
    came = _known(50, (47, 52), "confirmed", 1.05)
    refuted = replace(_known(65, (62, 67), "refuted", 0.95), id=8)
    for is_return, triggers in ((True, ["drift"]), (False, [])):
        known = [came, replace(refuted, is_return=is_return)]
        found = suspect(series, None, shown, list_explained(known))
        opened = [each.found for each in reconcile(found, known) if each.found]
        assert [each.trigger for each in opened] == triggers
        assert {each.since.number - FIRST for each in opened} <= {67}


@pytest.mark.parametrize("state", ["confirmed", "refuted"])
@pytest.mark.parametrize(("move", "triggers"), [(-0.04, ["version"]), (0.0, [])])
def test_a_release_soon_after_an_answered_shift_is_judged_by_itself(
    move: float, triggers: Sequence[str], state: str
) -> None:
    """The nights that the answer compared end before it."""
    nights = np.arange(70)
    logs = np.tile([0.006, -0.006], 35) + 0.06 * (nights >= 60) + move * (nights >= 63)
    known = replace(_known(60, (57, 62), state, 1.06), is_return=state == "refuted")
    found = suspect(_series(logs, [63]), None, _shown((60, 1.06)), list_explained([known]))
    opened = [each.found for each in reconcile(found, [known]) if each.found]
    assert [each.trigger for each in opened] == triggers
    assert {(each.before.number, each.since.number) for each in opened} <= {
        (FIRST + 62, FIRST + 63)
    }
