"""Histories whose noise or shifts break what a detector assumes, with a known truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from histories import History

NOISY = (
    "smooth variance", "GARCH", "one-sided tails", "seasons", "machines for days", "AR(2)",
)  # fmt: skip
SHAPED = ("ramp", "staircase", "two outlier nights")
_NOISES = (0.005, 0.01)
_SIZES = (0.03, 0.05, 0.10)
_RAMP, _STAIR = 10, 20
_NEAR = 5
_ENDS = 500


def simulate(seed: int, repeats: int) -> Iterator[History]:
    """`repeats` histories of each class, noise and size, half of them without a shift; 120 to 180
    nights. A ramp takes 10 nights, steps of a staircase are 20 nights apart. Two outlier nights in
    a row are off by the size, which is not a shift."""
    rng = np.random.default_rng(seed)
    for kind, noise, size, number in product(NOISY + SHAPED, _NOISES, _SIZES, range(repeats)):
        yield _draw(rng, kind, noise, size if number % 2 else 0.0)


def _draw(rng: np.random.Generator, kind: str, noise: float, size: float) -> History:
    count = int(rng.integers(120, 181))
    logs = noise * _draw_noise(rng, kind, count)
    change, shifts = _draw_change(rng, kind, count)
    logs += math.log1p(size) * rng.choice([-1, 1]) * change
    return History(
        kind=kind,
        values=0.1 * np.exp(logs),
        nights=np.arange(count),
        noise=noise,
        size=size,
        shifts=shifts if size else (),
    )


def _draw_noise(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Standard deviation about one; `machines for days` and `seasons` come on top of it."""
    noise, nights = rng.normal(size=count), np.arange(count)
    if kind == "smooth variance":
        return noise * np.exp(0.7 * np.sin(2 * np.pi * (nights / count + rng.random())))
    if kind == "GARCH":
        variance = np.ones(count)
        for night in range(1, count):
            variance[night] = 0.1 + 0.2 * noise[night - 1] ** 2 + 0.7 * variance[night - 1]
            noise[night] *= math.sqrt(variance[night])
    if kind == "one-sided tails":
        return 0.8 * noise + rng.exponential(1.0, count) * (rng.random(count) < 0.3)
    if kind == "seasons":
        phase = rng.random(2)
        week = np.sin(2 * np.pi * (nights / 7 + phase[0]))
        return noise + week + 2 * np.sin(2 * np.pi * (nights / 365 + phase[1]))
    if kind == "machines for days":
        moves = rng.random(count) < 0.2
        return noise + rng.uniform(2, 4) * (np.cumsum(moves) % 2)
    if kind == "AR(2)":
        for night in range(2, count):
            noise[night] = 0.4 * noise[night - 1] + 0.2 * noise[night - 2] + 0.88 * noise[night]
    return noise


def _draw_change(
    rng: np.random.Generator, kind: str, count: int
) -> tuple[np.ndarray, tuple[int, ...]]:
    """What a size of one adds to each night, and the rows of the shifts."""
    at, nights = int(rng.integers(20, count - 65)), np.arange(count)
    if kind == "ramp":
        return np.clip((nights - at) / _RAMP, 0, 1), (at + _RAMP // 2,)
    if kind == "staircase":
        places = (at, at + _STAIR, at + 2 * _STAIR)
        return np.sum([nights >= each for each in places], axis=0), places
    if kind == "two outlier nights":
        return ((nights == at) | (nights == at + 1)).astype(float), ()
    return (nights >= at).astype(float), (at,)


def rate(
    histories: Sequence[History], answers: Sequence[Sequence[int]], edges: Sequence[int]
) -> list[dict[str, Any]]:
    """A row per class: F1, the share of null series with a shift or an edge, and the share of those
    with a shift that report more of them than there are. `edges` counts each history's edges."""
    rows: list[dict[str, Any]] = []
    for kind in NOISY + SHAPED:
        tally, null, alarmed, true, extra = np.zeros(3), 0, 0, 0, 0
        for history, found, num_edges in zip(histories, answers, edges, strict=True):
            if history.kind != kind:
                continue
            tally += _count(history.shifts, found)
            if history.size == 0 or not history.shifts:
                null, alarmed = null + 1, alarmed + bool(len(found) + num_edges)
            else:
                true, extra = true + 1, extra + (len(found) > len(history.shifts))
        hits, false, missed = tally
        rows.append(
            {
                "kind": kind,
                "histories": null + true,
                "F1": float(2 * hits / (2 * hits + false + missed)) if true else None,
                "null series alarmed": alarmed / null if null else None,
                "extra shifts": extra / true if true else None,
            }
        )
    return rows


def rate_ends(
    seed: int, detect: Callable[[np.ndarray], tuple[list[int], int]]
) -> list[dict[str, Any]]:
    """How often +5 % in the last nights is a shift or an edge: 60 nights, 1 % noise. `detect` gives
    the rows of the shifts and the number of edges."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for last in (1, 2, 3, 7):
        shifts, edges = 0, 0
        for _ in range(_ENDS):
            logs = 0.01 * rng.normal(size=60)
            logs[-last:] += math.log1p(0.05)
            found, num_edges = detect(np.exp(logs))
            shifts += any(abs(row - (60 - last)) <= _NEAR for row in found)
            edges += bool(num_edges)
        kind = f"+5 % in the last {last}"
        rows.append({"kind": kind, "shift": shifts / _ENDS, "suspicion": edges / _ENDS})
    return rows


def _count(shifts: Sequence[int], found: Sequence[int]) -> np.ndarray:
    left = list(found)
    for shift in shifts:
        near = [row for row in left if abs(row - shift) <= _NEAR]
        if near:
            left.remove(min(near, key=lambda row: abs(row - shift)))
    hits = len(found) - len(left)
    return np.array([hits, len(left), len(shifts) - hits])
