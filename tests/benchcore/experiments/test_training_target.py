"""The time to an accuracy is that of the epochs until it, in every start."""

from __future__ import annotations

from typing import Any

import pytest

from benchcore.experiments.training import find_times
from dashboards.epochs import format_target


def _side(*starts: tuple[float, tuple[int, ...]]) -> dict[str, Any]:
    """Per start the seconds of an epoch, and how many of 10 images were right after each."""
    return {
        "starts": [
            {
                "blocks": [{"elapsed_ns": int(seconds * 1e9)} for _ in correct],
                "epochs": [{"correct": each} for each in correct],
            }
            for seconds, correct in starts
        ]
    }


def _document(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {"duel": {"dataset": {"num_val": 10}}, "contenders": [a, b]}


def test_the_faster_side_is_named_with_its_interval() -> None:
    a = _side((1.0, (3, 9, 9)), (1.1, (3, 9, 9)), (1.05, (3, 9, 9)))
    b = _side((2.0, (3, 9, 9)), (2.1, (3, 9, 9)), (2.2, (3, 9, 9)))
    found = find_times(_document(a, b), 0.9)
    assert found["a"] == pytest.approx([2.0, 2.2, 2.1])
    ratio = found["ratio"]
    assert ratio["verdict"] == "different"
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    assert ratio["ratio"] == pytest.approx(2.0, rel=0.03)
    words = format_target(found)
    assert words.startswith("Training to an accuracy of 90 %: a 2.10 s (3 of 3 starts); b 4.20 s")
    assert "as fast as b (different)" in words
    void = find_times(_document(a, b), 0.9, "the pair does not count: heat")
    assert (void["ratio"]["verdict"], void["ratio"]["ratio"]) == ("unknown", None)
    assert format_target(void).endswith("; the pair does not count: heat.")


def test_a_side_that_does_not_arrive_has_no_time_and_no_ratio() -> None:
    a, b = _side((1.0, (9,)), (1.0, (9,))), _side((1.0, (8,)), (1.0, (9,)))
    found = find_times(_document(a, b), 0.9)
    assert found["b"] == [None, 1.0]
    assert found["ratio"]["verdict"] == "unknown"
    assert "both sides reached it in 1 of 2 starts" in format_target(found)
    assert "b never in 1 starts" in format_target({**found, "b": [None]})
