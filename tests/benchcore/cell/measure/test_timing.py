"""Warm-up ends when a step's time is steady, and not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchcore.cell.measure.timing import is_steady, run_block, warm_up

STEP_NS = 50_000


def _play(times: Sequence[float]) -> Callable[[int], int]:
    """A step whose time in each block is the next one, and then the last one, of these."""
    left = list(times)

    def run_steps(steps: int) -> int:
        now = left.pop(0) if len(left) > 1 else left[0]
        return round(steps * STEP_NS * now)

    return run_steps


def _count_blocks(times: Sequence[float], compilations: Callable[[], int] = lambda: 0) -> int:
    found = warm_up(_play([1.0, *times]), compilations, limit_s=60.0, block_ms=1.0)
    assert found["steady"]
    return found["num_blocks"]


def test_a_step_that_is_steady_from_its_begin_takes_six_blocks() -> None:
    assert _count_blocks([1.0]) == 6


def test_blocks_that_others_slow_down_do_not_prolong_a_warm_up() -> None:
    assert _count_blocks([1.4, 1.0, 1.2, 1.3, 1.0, 1.6, 1.0]) == 6


@pytest.mark.parametrize("change", [0.95, 1.05])
def test_a_step_that_still_changes_is_not_steady(change: float) -> None:
    times = [change**block for block in range(12)]
    assert _count_blocks(times) >= 12


def test_a_late_compilation_starts_the_count_again() -> None:
    counts = iter([0] * 5 + [1] * 60)
    assert _count_blocks([1.0], lambda: next(counts)) == 8


def test_a_step_that_never_becomes_steady_ends_at_the_limit() -> None:
    times = [1.01**block for block in range(20_000)]
    found = warm_up(_play([1.0, *times]), lambda: 0, limit_s=0.005, block_ms=1.0)
    assert found["num_blocks"] > 6 and not found["steady"]


def test_a_block_holds_the_steps_that_fit_its_length() -> None:
    found = warm_up(_play([1.0]), lambda: 0, limit_s=60.0, block_ms=1.0)
    assert found == {"num_blocks": 6, "steady": True, "compilations": 0, "steps_per_block": 20}


@pytest.mark.parametrize("slow", [4, 5])
def test_a_block_that_others_slow_down_does_not_shorten_the_next_ones(slow: int) -> None:
    times = [1.0] * slow + [160.0, 1.0]
    found = warm_up(_play([1.0, *times]), lambda: 0, limit_s=60.0, block_ms=1.0)
    assert (found["num_blocks"], found["steps_per_block"]) == (6, 20)


def test_two_blocks_of_three_may_be_slow_but_not_all() -> None:
    quiet = [1.0, 1.0, 1.0]
    none = [0] * 6
    assert is_steady([*quiet, 1.5, 1.01, 1.5], none)
    assert not is_steady([*quiet, 1.03, 1.03, 1.03], none)
    assert not is_steady([*quiet, 0.97, 1.5, 1.5], none)
    assert not is_steady([*quiet, 1.0, 1.0, 1.0], [0, 0, 0, 0, 0, 1])
    assert not is_steady([1.0] * 5, [0] * 5)


def test_a_block_that_was_planned_by_slow_steps_is_made_longer() -> None:
    """A side may be slow only while the length of its blocks is chosen."""
    ran: list[int] = []

    def run_steps(steps: int) -> int:
        ran.append(steps)
        return 1_000_000 * steps

    assert run_block(run_steps, 25, 100.0) == (25, 25_000_000)
    assert run_block(run_steps, 1, 100.0) == (100, 100_000_000)
    assert ran == [25, 1, 100]
    assert run_block(lambda steps: steps, 1, 100.0)[0] == 100_000
