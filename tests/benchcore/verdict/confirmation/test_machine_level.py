from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.confirmation.machine_check import judge_machine_level
from benchcore.verdict.history.levels import HistoryLevels, measure_spread


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
