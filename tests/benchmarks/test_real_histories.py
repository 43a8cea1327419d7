"""Histories that were measured, and the score of detectors on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from histories import SIZES
from quiet_nights import read_starts
from real_histories import RATIOS, STEP_TIMES, group_twins, inject, read_histories
from verdicts import score_real


def _document(*, stolen: float = 0.0, failed: bool = False) -> dict[str, Any]:
    """Four contenders of two starts and three rounds, a step 100, 100, 200 and 200 us; what others
    stole is of the second start of the last."""

    def start(index: int, step_ns: int, share: float) -> dict[str, Any]:
        telemetry = {"steal_share": share, "sm_clock_mhz": None, "throttle_reasons": None}
        telemetry |= {"foreign_processes": None}
        blocks = [
            {"round": number, "steps": 10, "elapsed_ns": 10 * step_ns, "telemetry": telemetry}
            for number in range(3)
        ]
        return {"index": index, "started_at": f"2026-01-0{index + 1}T00:00:00.5", "blocks": blocks}

    sides = (("jax", 100_000), ("jax", 100_000), ("torch", 200_000), ("torch", 200_000))
    contenders = [
        {
            "name": f"{framework} {number}",
            "framework": framework,
            "status": "failed" if failed and number == 3 else "ok",
            "failure": {"reason": "killed"},
            "starts": [
                start(index, step_ns, stolen if (index, number) == (1, 3) else 0.0)
                for index in range(2)
            ],
        }
        for number, (framework, step_ns) in enumerate(sides)
    ]
    return {"contenders": contenders}


def test_a_start_is_a_night_and_disturbed_rounds_are_empty() -> None:
    first, second = read_starts("mlp/x", _document(stolen=0.5))
    assert (first.case, first.at) == ("mlp/x", "2026-01-01T00:00:00")
    quiet = {"jax": [100.0] * 3, "twin of jax": [100.0] * 3, "torch": [200.0] * 3}
    assert first.step_us == {**quiet, "twin of torch": [200.0] * 3}
    assert second.step_us == {**quiet, "twin of torch": [None] * 3}
    histories = list(read_histories([asdict(first), asdict(second)] * 5))
    assert [len(each.values) for each in histories] == [10, 10, 5, 10, 5, 5, 10, 10, 10, 5]
    assert histories[1].values == pytest.approx(2.0)  # torch by jax


def test_a_contender_that_did_not_run_is_no_night() -> None:
    with pytest.raises(ValueError, match="wanted four contenders that run, got torch 3"):
        list(read_starts("mlp/x", _document(failed=True)))


def _starts(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)

    def play(night: int) -> list[float | None]:
        return [None] * 6 if night == 7 else list(50 * np.exp(0.01 * rng.normal() + np.zeros(6)))

    return [
        {"case": case, "step_us": {"a": [50.0] * 6, "twin of a": play(night)}}
        for night in range(count)
        for case in ("mlp/x", "mlp/y")
    ]


def test_disturbed_nights_are_missing_and_shifts_are_at_their_stated_place() -> None:
    quiet = list(read_histories(_starts(60)))
    assert [history.kind for history in quiet] == [RATIOS, STEP_TIMES, STEP_TIMES] * 2
    ratios = quiet[0]
    assert len(ratios.values) == 59
    assert 7 not in ratios.nights
    assert ratios.noise == pytest.approx(0.01, rel=0.5)
    for history in inject([ratios], seed=1, repeats=2):
        (shift,) = history.shifts
        moved = np.log(history.values / ratios.values)
        assert not moved[:shift].any()
        assert np.exp(np.abs(moved[shift:])) == pytest.approx(1 + history.size)
    assert [each.size for each in inject([ratios], 1, 2)] == [s for s in SIZES for _ in range(2)]


def test_false_shifts_count_where_there_is_none_and_hits_by_size() -> None:
    quiet = list(read_histories(_starts(60)))
    histories = [*quiet, *inject([quiet[0]], seed=1, repeats=2)]
    right = score_real(histories, [history.shifts for history in histories])
    assert right == {
        "false in ratios": 0.0,
        "false in step times": 0.0,
        **{f"F1 at {size:.0%}": 1.0 for size in SIZES},
    }
    wrong = score_real(histories, [[1] for _ in histories])
    assert wrong["false in ratios"] == pytest.approx(1000 / 59)
    assert wrong["F1 at 5%"] == 0.0


def test_starts_of_replicates_are_read_in_order_without_disturbed_ones() -> None:
    groups = list(group_twins(_starts(60), 5))
    assert [len(group) for group in groups] == [5] * 22
    starts = _starts(60)
    for start in starts:
        start["step_us"]["twin of a"][1:] = [100.0, None, None, None, None]
    first = next(group_twins(starts, 2))
    assert [pairs[-1] for pairs in first] == pytest.approx([np.log(2)] * 2)
    assert [len(pairs) for pairs in first] == [2, 2]
