"""Small changes of several releases that add up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.releases import MOST_RELEASES, ReleaseStep, find_trend

PERCENT = math.log(1.01)


def _steps(logs: list[float], half_width: float = 0.006) -> list[ReleaseStep]:
    """Newest first; the newest is version 0.{number of steps}."""
    count = len(logs)
    return [
        ReleaseStep(
            new=f"0.{count - number}",
            old=f"0.{count - number - 1}",
            log_ratio=log,
            half_width=half_width,
        )
        for number, log in enumerate(logs)
    ]


def test_the_third_release_in_a_row_that_costs_one_percent_is_seen() -> None:
    assert find_trend(_steps([-PERCENT]), 0.01) is None
    assert find_trend(_steps([-PERCENT] * 2), 0.01) is None  # 2 %, ± 0.9 %: not sure
    found = find_trend(_steps([-PERCENT] * 3), 0.01)
    assert found is not None
    assert (found.since, found.num_releases) == ("0.0", 3)
    assert found.log_ratio == pytest.approx(-3 * PERCENT)
    assert found.low < found.log_ratio < found.high < -PERCENT


def test_changes_that_cancel_are_no_trend() -> None:
    assert find_trend(_steps([-PERCENT, PERCENT] * 4, half_width=0.002), 0.01) is None


def test_only_the_releases_that_add_most_are_counted() -> None:
    found = find_trend(_steps([-0.02, -0.02, 0.05, 0.0], half_width=0.002), 0.01)
    assert found is not None
    assert (found.since, found.num_releases) == ("0.2", 2)


def test_no_more_than_the_newest_releases_are_added_up() -> None:
    quiet = [0.0] * MOST_RELEASES
    assert find_trend(_steps([*quiet, -0.5, -0.5]), 0.01) is None


def test_releases_that_changed_nothing_hardly_ever_make_a_trend() -> None:
    """Half widths of 95 % intervals over many measured starts: standard error 0.5 %."""
    rng = np.random.default_rng(3)
    errors = rng.normal(0.0, 0.005, (2000, MOST_RELEASES))
    found = [find_trend(_steps(each.tolist(), 1.96 * 0.005), 0.01) for each in errors]
    assert sum(each is not None for each in found) <= 20
