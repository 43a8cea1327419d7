"""Timed steps take as long as steps whose results are checked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest

from benchcore.cell.proof import pace
from benchcore.cell.proof.left_behind import StepUnlikeProofError
from benchcore.cell.proof.pace import check_pace, choose_number, take_times

_NONE: Iterator[float] = iter(())


@pytest.mark.parametrize(
    ("timed", "proven", "error"),
    [
        ([100, 100, 100], [399, 900], None),
        ([100, 100, 100], [401, 401], "the timed step does less"),
        ([900, 100, 101], [240], None),
        ([410, 410, 600], [100, 300], "the timed step does more"),
        ([390, 410, 600], [100, 300], None),
        ([], [100], None),
        ([100], [], None),
    ],
)
def test_steps_that_take_longer_or_shorter_than_proven_ones_are_found(
    timed: list[float], proven: list[float], error: str | None
) -> None:
    if error is None:
        check_pace(timed, proven, _NONE)
        return
    with pytest.raises(StepUnlikeProofError, match=error):
        check_pace(timed, proven, repeat(900.0) if "less" in error else _NONE)


def test_a_proven_block_that_was_disturbed_is_run_again() -> None:
    check_pace([100, 100], [500, 600], chain([450.0], repeat(120.0)))


def test_short_blocks_are_run_until_there_is_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert take_times(repeat(10.0)) == [10.0] * 8
    assert take_times(_NONE) == []
    monkeypatch.setattr(pace, "_LIMIT_S", -1.0)
    assert take_times(repeat(10.0)) == [10.0]


@pytest.mark.parametrize(("size", "number"), [(1, 64), (2**20, 4), (2**26, 3)])
def test_a_short_block_takes_as_many_inputs_as_a_cache_holds(size: int, number: int) -> None:
    given: Any = {"images": np.zeros(size, np.float32)}
    assert choose_number(given, 3) == number
