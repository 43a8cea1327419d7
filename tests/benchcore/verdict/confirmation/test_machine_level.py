from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchcore.verdict.confirmation.machine_check import judge_machine_level
from benchcore.verdict.history.levels import HistoryLevels, measure_spread
from benchcore.verdict.samples import Judgement


def _levels(**given: object) -> HistoryLevels:
    values = {"before": 0.0, "after": 0.05, "num_before": 20, "num_after": 5, "spread": 0.007}
    return HistoryLevels(**{**values, **given})  # type: ignore[arg-type]


def test_a_change_beyond_what_matters_is_different() -> None:
    found = judge_machine_level([0.051, 0.049, 0.05], _levels())
    assert found is not None and found.verdict == "different"
    assert found.low is not None and found.high is not None
    assert found.low < 0.05 < found.high
    # By hand: 0.05 / hypot(0.007 sqrt(1.05), 0.001 / sqrt 3), 19 degrees of freedom, 25 places.
    assert found.p == pytest.approx(25 * 1.272e-6, rel=0.05)


def test_nights_since_the_change_make_it_certain_and_one_outlier_does_not() -> None:
    few = judge_machine_level([0.051, 0.049], _levels(spread=0.02))
    more = judge_machine_level([0.051, 0.049], _levels(spread=0.02, since=(0.05,) * 5))
    assert few is not None and more is not None
    assert (few.verdict, more.verdict) == ("unknown", "different")
    odd = judge_machine_level([0.001, -0.001], _levels(since=(0.001, 0.3, -0.002, 0.0, 0.0)))
    assert odd is not None and odd.verdict == "same"


def test_the_level_must_clear_what_matters_with_its_whole_interval() -> None:
    given = {"after": 0.014, "since": (0.014,) * 5}
    found = judge_machine_level([0.0141, 0.0139], _levels(**given))  # type: ignore[arg-type]
    assert found is not None and found.verdict == "unknown"
    assert found.p is not None and found.p < 0.05


def test_the_place_with_the_largest_change_is_rarely_significant() -> None:
    """The nights since were chosen as those that differ most from the nights before."""
    rng = np.random.default_rng(6)
    significant = 0
    for _ in range(500):
        nights = rng.normal(0, 0.007, 30)
        tests = [_judge_split(nights, since) for since in range(15, 28)]
        significant += min(tests) <= 0.05
    assert significant <= 25


def _judge_split(nights: np.ndarray, since: int) -> float:
    old, new = nights[:since], nights[since:]
    levels = _levels(before=float(np.median(old)), num_before=since, num_after=len(new),
                     spread=measure_spread(old), since=tuple(new))  # type: ignore[arg-type]  # fmt: skip
    found = judge_machine_level([nights[-1], nights[-1]], levels)
    assert found is not None and found.p is not None
    return found.p


def test_a_level_that_was_left_before_must_last_twice_as_long_as_then() -> None:
    given = {"num_after": 10, "since": (0.05,) * 10, "longest_spell": 5}
    found = judge_machine_level([0.051, 0.049], _levels(**given))  # type: ignore[arg-type]
    assert found is not None and found.verdict == "unknown"
    assert "a spell of 5 nights there ended before" in found.reason
    longer = _levels(num_after=11, since=(0.05,) * 11, longest_spell=5)
    found = judge_machine_level([0.051, 0.049], longer)
    assert found is not None and found.verdict == "different"


def test_a_return_to_a_level_of_before_is_the_same_however_long_it_lasts() -> None:
    levels = _levels(num_after=90, since=(0.05,) * 90, longest_spell=7, known=7)
    found = judge_machine_level([0.051, 0.049], levels)
    assert found is not None and found.verdict == "same"
    assert found.reason == "at a level where it already was for 7 nights"
    unclear = judge_machine_level([0.051, 0.049], _levels(known=7, spread=0.03))
    assert unclear is not None and unclear.verdict == "unknown"


def test_what_the_environments_changed_is_not_the_machines() -> None:
    """A release by 1 % is the same as before, but two of them are no machine."""
    levels = _levels(after=0.025, spread=0.002, since=(0.025,) * 5)
    alone = judge_machine_level([0.0251, 0.0249], levels)
    assert alone is not None and alone.verdict == "different"
    own = Judgement(verdict="same", log_ratio=0.012, low=0.01, high=0.014, reason="")
    found = judge_machine_level([0.0251, 0.0249], levels, own)
    assert found is not None and found.verdict == "unknown"
    assert found.log_ratio == pytest.approx(0.013)
    unsure = replace(own, low=-0.001)
    found = judge_machine_level([0.0251, 0.0249], levels, unsure)
    assert found is not None and found.verdict == "unknown"
    assert found.log_ratio == pytest.approx(0.025)


def test_a_level_that_starts_do_not_show_today_is_open() -> None:
    levels = _levels(since=(0.05,) * 12, num_after=12)
    found = judge_machine_level([0.001, -0.001], levels)
    assert found is not None and found.verdict == "unknown"
    assert found.reason == "these starts do not show it"


def test_a_level_within_what_fresh_starts_call_the_same_is_open() -> None:
    levels = _levels(after=0.018, spread=0.001, since=(0.018,) * 5)
    found = judge_machine_level([0.0181, 0.0179], levels)
    assert found is not None and found.verdict == "unknown" and (found.low or 0) > 0.01


@pytest.mark.parametrize(
    ("levels", "given"),
    [
        ([0.05], {}),
        ([0.05, 0.051], {"num_after": 2}),
        ([0.05, 0.051], {"spread": None}),
    ],
)
def test_an_untestable_level_has_no_judgement(levels: list[float], given: dict[str, float]) -> None:
    assert judge_machine_level(levels, _levels(**given)) is None


def test_a_level_that_went_the_other_way_than_the_nights_is_no_evidence() -> None:
    found = judge_machine_level([-0.051, -0.049], _levels())
    assert found is not None and found.verdict == "same"


@pytest.mark.parametrize("modes", [False, True])
@pytest.mark.parametrize("state", ["shared", "own"])
def test_unchanged_levels_are_rarely_called_different(state: str, modes: bool) -> None:
    """Of 1,000 pairs of unchanged levels, with starts that share their night's state or not; two
    modes 4 standard deviations apart are no change."""
    rng = np.random.default_rng(5)

    def draw(count: int) -> np.ndarray:
        return rng.normal(0, 0.007, count) + modes * 0.028 * (rng.random(count) < 0.3)

    called = 0
    for _ in range(1000):
        nights = draw(20)
        spread = measure_spread(nights)
        starts = draw(1) + rng.normal(0, 0.002, 5) if state == "shared" else draw(5)
        levels = _levels(before=float(np.median(nights)), after=float(draw(5).mean()))
        levels = HistoryLevels(before=levels.before, after=math.copysign(0.05, starts.mean()),
                              num_before=20, num_after=5, spread=spread)  # fmt: skip
        found = judge_machine_level(starts.tolist(), levels)
        called += found is not None and found.verdict == "different"
    assert called <= 50
