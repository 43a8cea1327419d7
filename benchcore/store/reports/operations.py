"""Where one framework takes more than twice as long for a single operation, now and with
earlier versions; from the answers of `guide.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SLOW = 2.0
"""The least ratio of step times with which an operation is listed as slow."""
Move = Literal["entered", "left", "turned", "stayed", "new"]
"""What an operation did since earlier versions: `entered` or `left` the list, `turned` (the other
framework is the slow one now), `stayed`, or `new` (listed, and not measured with them)."""
Answer = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """Side `slow` (`a` or `b`) takes `factor` times as long as the other one, from `low` to `high`
    with 95 % confidence; NaN where there is no interval."""

    slow: Literal["a", "b"]
    logs: tuple[float, float, float]

    @property
    def factor(self) -> float:
        """How many times as long the slow side takes, at least 1."""
        return math.exp(self.logs[0])

    @property
    def is_listed(self) -> bool:
        """Whether the whole interval lies beyond `SLOW`."""
        return self.logs[1] > math.log(SLOW)


def measure_slowness(row: Mapping[str, Any]) -> Slowness:
    """The slowness in a pair's `log_ratio`, `low` and `high`: logs of T_b / T_a."""
    found = [row[key] for key in ("log_ratio", "low", "high")]
    middle, low, high = (math.nan if each is None or each != each else each for each in found)
    if middle > 0:
        return Slowness(slow="b", logs=(middle, low, high))
    return Slowness(slow="a", logs=(-middle, -high, -low))


def list_operations(answers: Sequence[Answer]) -> list[Answer]:
    """The answers about single operations that count, the largest ratio first."""
    known = [each for each in answers if each["use_case"] == "op" and each["counts"]]
    return sorted(known, key=lambda row: -abs(row["log_ratio"]))


def find_move(row: Answer) -> Move | None:
    """What became of an operation since it was measured with earlier versions (`earlier`); None
    = it is not listed, and was not."""
    now = measure_slowness(row)
    if row["earlier"] is None:
        return "new" if now.is_listed else None
    before = measure_slowness(row["earlier"])
    if not now.is_listed:
        return "left" if before.is_listed else None
    if not before.is_listed:
        return "entered"
    return "stayed" if before.slow == now.slow else "turned"
