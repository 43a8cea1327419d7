"""A count that changed by one is suspected in its history, and confirmed by fresh starts."""

from __future__ import annotations

import math

import pytest
from tiny_series import make_night

from benchcore.store.metrics import find_tracked
from benchcore.verdict.confirmation.decide import decide
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.series import Night, make_series
from benchcore.verdict.history.suspicions import suspect

TORCH = 380.0


def _night(number: int, count: float) -> Night:
    return make_night(number, math.log(TORCH / count), values=(count, TORCH))


@pytest.mark.parametrize("count", [400.0, 6_000.0, 200_000.0])
def test_one_more_operation_is_suspected_and_confirmed(count: float) -> None:
    scale = find_tracked("program_ops").tracked_scale
    nights = [_night(number, count + (number >= 20)) for number in range(40)]
    assert len(suspect(make_series(nights, scale))) == 1
    old, new, torch = ({0: each} for each in (count, count + 1, TORCH))
    start = {"a_old": old, "control": old, "a_new": new, "b_old": torch, "b_new": torch}
    levels = HistoryLevels(before=nights[0].log_ratio, after=nights[-1].log_ratio, scale=scale)
    (found,) = decide([([start] * 5, levels)], final=False)
    assert (found.verdict, found.culprit) == ("confirmed", "a")


def test_an_equal_count_is_refuted() -> None:
    scale = find_tracked("program_ops").tracked_scale
    cells = {name: {0: 6_000.0} for name in ("a_old", "control", "b_old", "b_new")}
    start = {**cells, "a_new": {0: 6_000.0}}
    levels = HistoryLevels(before=0.0, after=0.0, scale=scale)
    (found,) = decide([([start] * 5, levels)], final=True)
    assert (found.verdict, found.culprit) == ("refuted", "neither")
