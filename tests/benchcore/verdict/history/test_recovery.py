from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchcore.verdict.history.levels import KNOWN_NIGHTS, SuspectedNights
from benchcore.verdict.history.recovery import find_recovery
from benchcore.verdict.history.series import METHOD_CONDITION, Night, SeriesKey, make_series

_NAMES = ("workload", "case_name", "track", "a_arm", "b_arm", "device_fingerprint")
_KEY = SeriesKey(**dict.fromkeys(_NAMES, "x"))
_EDGE = SuspectedNights(trigger="edge", before="29", since="30", after="30")


def _nights(moves: np.ndarray, noise: float = 0.005) -> list[Night]:
    logs = moves + np.random.default_rng(5).normal(0, noise, len(moves))
    first = datetime(2026, 1, 1, 3, tzinfo=UTC)
    named = dict.fromkeys(("a", "b", "a_environment", "b_environment"), "x")
    return [
        Night(key=_KEY, at=first + timedelta(days=row), duel_run=str(row), log_ratio=log, **named)
        for row, log in enumerate(logs.tolist())
    ]


def _find(moves: np.ndarray, noise: float = 0.005) -> str | None:
    found = find_recovery(make_series(_nights(moves, noise)), _EDGE, 0.05)
    return None if found is None else found.duel_run


def _moved(until: int, num_nights: int) -> np.ndarray:
    rows = np.arange(num_nights)
    return 0.05 * ((rows >= 30) & (rows < until))


@pytest.mark.parametrize("until", [31, 33, 45])
def test_a_change_is_gone_after_a_week_at_the_old_level(until: int) -> None:
    assert _find(_moved(until, until + KNOWN_NIGHTS - 1)) is None
    assert _find(_moved(until, until + KNOWN_NIGHTS)) == str(until)


def test_a_change_that_lasts_or_is_half_gone_or_comes_again_is_not_gone() -> None:
    assert _find(_moved(99, 60)) is None
    assert _find(_moved(99, 60) - 0.025 * (np.arange(60) >= 40)) is None
    again = _moved(40, 60)
    again[57:] = 0.05
    assert _find(again) is None
    again[57:] = 0
    again[50] = 0.05  # a single night ends no return
    assert _find(again) == "40"


def test_noise_that_hides_the_old_level_closes_nothing() -> None:
    assert _find(_moved(40, 49), noise=0.05) is None


def test_what_a_bridge_took_out_counts_for_the_machine_alone() -> None:
    """A driver moved the ratio, and still does."""
    nights = _nights(np.zeros(60))
    nights[30:] = [replace(each, bridged=0.05) for each in nights[30:]]
    for of_machine in (False, True):
        found = find_recovery(make_series(nights), _EDGE, 0.05, of_machine=of_machine)
        assert (found is None) == of_machine
    nights[45:] = [replace(each, bridged=0.0) for each in nights[45:]]
    found = find_recovery(make_series(nights), _EDGE, 0.05, of_machine=True)
    assert found is not None and found.duel_run == "45"
    nights[50:] = [replace(each, conditions={METHOD_CONDITION: "2"}) for each in nights[50:]]
    assert find_recovery(make_series(nights), _EDGE, 0.05, of_machine=True) is None


def test_nights_that_no_longer_count_show_no_return() -> None:
    gone = replace(_EDGE, after="99")
    assert find_recovery(make_series(_nights(_moved(31, 60))), gone, 0.05) is None
