"""Histories that were measured and in which nothing changed, and such a shift put into them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from histories import SIZES, History

from benchcore.verdict.starts import log_ratios_by_start

RATIOS = "ratios"
STEP_TIMES = "step times"
Side = dict[int, dict[int, float]]


def read_histories(starts: Sequence[Mapping[str, Any]]) -> Iterator[History]:
    """One history per pair of contenders and one per contender, for each case; a start stands for a
    night. `starts` are those of `quiet_nights.py`. Disturbed nights are missing."""
    for case in _cases(starts):
        nights = [start["step_us"] for start in starts if start["case"] == case]
        for a, b in combinations(nights[0], 2):
            given = [log_ratios_by_start(*_sides(night, a, b)).get(0) for night in nights]
            yield _make(RATIOS, [None if log is None else np.exp(log) for log in given])
        for name in nights[0]:
            kept = [[each for each in night[name] if each is not None] for night in nights]
            yield _make(STEP_TIMES, [np.median(each) if each else None for each in kept])


def _cases(starts: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({start["case"] for start in starts})


def _sides(night: Mapping[str, Sequence[float | None]], a: str, b: str) -> list[Side]:
    return [
        {0: {number: us for number, us in enumerate(night[name]) if us is not None}}
        for name in (a, b)
    ]


def _make(kind: str, given: Sequence[float | None]) -> History:
    rows = np.flatnonzero([value is not None for value in given])
    values = np.array([given[row] for row in rows], float)
    noise = _learn_noise(values)
    return History(kind=kind, values=values, nights=rows, noise=noise, size=0.0, shifts=())


def _learn_noise(values: np.ndarray) -> float:
    """A standard deviation, by the median distance of neighbours: bears outliers and levels."""
    return float(1.4826 * np.median(np.abs(np.diff(np.log(values)))) / math.sqrt(2))


def inject(histories: Sequence[History], seed: int, repeats: int) -> Iterator[History]:
    """Each history with a shift of each size, `repeats` times, either way, 15 nights or more from
    both ends."""
    rng = np.random.default_rng(seed)
    for history in histories:
        for size in SIZES:
            for _ in range(repeats):
                shift = int(rng.integers(15, len(history.values) - 15))
                moved = history.values.copy()
                moved[shift:] *= math.exp(rng.choice([-1, 1]) * math.log1p(size))
                yield replace(history, values=moved, size=size, shifts=(shift,))


def group_twins(starts: Sequence[Mapping[str, Any]], size: int) -> Iterator[list[np.ndarray]]:
    """Starts of a contender against its replicate, `size` in a row: log(T_replicate / T) of each
    start, one value per undisturbed round."""
    for case in _cases(starts):
        nights = [start["step_us"] for start in starts if start["case"] == case]
        for name in nights[0]:
            if f"twin of {name}" not in nights[0]:
                continue
            pairs = [_pair(night[name], night[f"twin of {name}"]) for night in nights]
            kept = [each for each in pairs if len(each)]
            for first in range(0, len(kept) - size + 1, size):
                yield kept[first : first + size]


def _pair(a: Sequence[float | None], b: Sequence[float | None]) -> np.ndarray:
    whole = zip(a, b, strict=True)
    return np.array([math.log(y / x) for x, y in whole if x is not None and y is not None])
