"""Which suspicions of a night are the ones that are stored already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_series import make_night

from benchcore.verdict.history.detect import Detection, Shift
from benchcore.verdict.history.matching import StoredSuspicion, list_explained, reconcile
from benchcore.verdict.history.series import Series, make_series
from benchcore.verdict.history.suspicions import Suspicion, suspect


def _series(logs: np.ndarray) -> Series:
    return make_series(make_night(number, float(log)) for number, log in enumerate(logs))


def _noise(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.005, count)


def _suspicion(number: int, ratio: float = 1.05, trigger: str = "shift") -> Suspicion:
    return Suspicion(
        trigger=trigger,  # type: ignore[arg-type]
        before=make_night(number - 1, 0),
        since=make_night(number, 0),
        after=make_night(number, 0),
        ratio=ratio,
        reason="",
    )


def _known(number: int, state: str = "open", trigger: str = "shift") -> StoredSuspicion:
    return StoredSuspicion(
        id=7,
        trigger=trigger,  # type: ignore[arg-type]
        number=make_night(number, 0).number,
        ratio=1.04,
        state=state,  # type: ignore[arg-type]
    )


def _updates(
    found: Suspicion | None, known: StoredSuspicion | None
) -> list[tuple[int | None, bool]]:
    changes = reconcile([found] if found else [], [known] if known else [])
    return [(each.known, each.found is not None) for each in changes]


def test_a_shift_whose_place_moves_with_more_nights_is_the_same_one() -> None:
    assert _updates(_suspicion(33), _known(30)) == [(7, True)]
    assert _updates(_suspicion(36), _known(30)) == [(None, True), (7, False)]
    assert _updates(_suspicion(33, ratio=0.95), _known(30)) == [(None, True), (7, False)]


def test_a_change_that_reverted_has_passed_and_answered_ones_stay() -> None:
    for state in ("open", "unknown"):
        assert _updates(None, _known(30, state)) == [(7, False)]
    for state in ("confirmed", "refuted", "passed"):
        assert _updates(None, _known(30, state)) == []
    for state in ("confirmed", "refuted", "unknown", "passed"):
        assert _updates(_suspicion(30), _known(30, state)) == []


def test_an_edge_that_became_a_shift_is_suspected_again_unless_confirmed() -> None:
    for state, changes in (("refuted", [(7, True)]), ("passed", [(7, True)]), ("confirmed", [])):
        assert _updates(_suspicion(30), _known(30, state, "edge")) == changes
    assert _updates(_suspicion(30, trigger="edge"), _known(30, "refuted", "edge")) == []


def test_a_compared_release_is_not_compared_again_with_the_sides_swapped() -> None:
    other_way = _suspicion(30, ratio=0.95, trigger="version")
    for number, again in ((30, []), (33, []), (29, [(None, True)])):
        assert _updates(other_way, _known(number, "refuted", "version")) == again


def test_a_confirmed_shift_explains_a_drift_since_before_it() -> None:
    """Later it lets a history look like a drift; one shift is one event."""
    confirmed = _known(30, "confirmed")
    assert _updates(_suspicion(34), confirmed) == []
    assert _updates(_suspicion(42), confirmed) == [(None, True)]
    assert _updates(_suspicion(10, trigger="drift"), confirmed) == []
    assert _updates(_suspicion(10, ratio=0.95, trigger="drift"), confirmed) == [(None, True)]
    assert _updates(_suspicion(40, trigger="drift"), confirmed) == [(None, True)]


def test_nights_that_fill_a_gap_later_do_not_confirm_its_change_again() -> None:
    """The first nights after the gap showed it; the others place it within the gap."""
    days = (make_night(19, 0).number, make_night(42, 0).number)
    confirmed = replace(_known(40, "confirmed"), compared=days)
    for number in (20, 30, 42):
        assert _updates(_suspicion(number), confirmed) == []
    assert _updates(_suspicion(30, ratio=0.95), confirmed) == [(None, True)]
    assert _updates(_suspicion(19), confirmed) == [(None, True)]
    refuted = replace(confirmed, state="refuted")
    assert _updates(_suspicion(30), refuted) == [(None, True)]


def test_a_drift_that_goes_on_after_a_confirmed_one_is_another_suspicion() -> None:
    """Its event has the size that was measured then."""
    days = (make_night(0, 0).number, make_night(50, 0).number)
    confirmed = replace(_known(0, "confirmed", "drift"), compared=days)
    assert list_explained([confirmed]) == [(days[1], days[1])]
    assert _updates(_suspicion(0, trigger="drift"), confirmed) == []
    logs = _noise(120) + np.linspace(0, 0.08, 120)
    (found,) = suspect(_series(logs), explained=list_explained([confirmed]))
    assert (found.trigger, found.since.number) == ("drift", days[1])
    assert found.reason.endswith("since the last confirmed change or return")
    changes = reconcile([found], [confirmed])
    assert [each.known for each in changes] == [None]


def test_a_drift_after_a_confirmed_shift_is_suspected_although_history_shows_the_shift() -> None:
    logs = _noise(160) + 0.05 * (np.arange(160) >= 40)
    logs += np.interp(np.arange(160), [60, 159], [0, 0.06])
    shift = _shown(40)
    (before,) = suspect(_series(logs), found=shift)
    assert before.trigger == "shift"
    days = (make_night(37, 0).number, make_night(42, 0).number)
    confirmed = replace(_known(40, "confirmed"), compared=days)
    found = suspect(_series(logs), found=shift, explained=list_explained([confirmed]))
    assert [each.trigger for each in found] == ["shift", "drift"]
    assert found[1].since.number == days[1]
    assert [each.known for each in reconcile(found, [confirmed])] == [None]
    drift = replace(_known(40, "unknown", "drift"), id=8, answered=make_night(158, 0).number)
    today = make_night(159, 0).number
    assert reconcile(found, [confirmed, drift], today) == []
    passed = reconcile(found[:1], [confirmed, drift], today)  # the shift is the confirmed one
    assert [(each.known, each.found) for each in passed] == [(8, None)]


def _shown(index: int) -> Detection:
    shift = Shift(index=index, before=1.0, after=1.05, ratio=1.05, low=1.04, high=1.06)
    return Detection(shifts=(shift,))


@pytest.mark.parametrize("state", ["unknown", "passed"])
@pytest.mark.parametrize(("answered", "again"), [(2, 3), (4, 5), (8, 10), (20, 25)])
def test_an_undecided_suspicion_is_reopened_once_it_has_lasted_longer(
    answered: int, again: int, state: str
) -> None:
    since = make_night(30, 0).number
    known = replace(_known(30, state), answered=since + answered)
    for days, updates in ((again - 1, []), (again, [(7, True)])):
        changes = reconcile([_suspicion(30)], [known], since + days)
        assert [(each.known, each.found is not None) for each in changes] == updates
    refuted = replace(known, state="refuted")
    assert reconcile([_suspicion(30)], [refuted], since + 99) == []


def test_two_shifts_are_two_suspicions() -> None:
    changes = reconcile([_suspicion(10), _suspicion(12)], [_known(11)])
    assert sorted((each.known or 0) for each in changes) == [0, 7]
