"""Simulated histories: one value per night, with known shifts of one class each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

SHIFTED = (
    "white", "correlated 0.3", "correlated 0.6", "outliers", "heavy tails", "bimodal nodes",
    "missing nights", "two shifts", "edge",
)  # fmt: skip
NEVER_SHIFTED = ("drift", "variance change", "last-night outlier")
NOISES = (0.005, 0.01, 0.03)
SIZES = (0.02, 0.03, 0.05, 0.10)
_OUTLIERS = 0.04
"""Share of nights that are 5 to 30 % off, either way."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Times of one case, night by night. `shifts` are rows of the first nights at a new level.

    `nights` are the numbers of the nights that were measured. `noise` is one standard deviation.
    """

    kind: str
    values: np.ndarray
    nights: np.ndarray
    noise: float
    size: float
    shifts: tuple[int, ...]


def simulate(seed: int, repeats: int) -> Iterator[History]:
    """Per class, noise and size `repeats` histories; half of them have no shift.

    90 to 180 nights. Shifts go either way, 15 nights or more from both ends and from each other,
    but in `edge` 3 to 7 nights before the end.
    """
    rng = np.random.default_rng(seed)
    for kind, noise, size, number in product(
        SHIFTED + NEVER_SHIFTED, NOISES, SIZES, range(repeats)
    ):
        yield _draw(rng, kind, noise, size if kind in SHIFTED and number % 2 else 0.0)


def _draw(rng: np.random.Generator, kind: str, noise: float, size: float) -> History:
    count = int(rng.integers(90, 181))
    logs = noise * _draw_noise(rng, kind, count)
    shifts = _place(rng, kind, count) if size else ()
    for shift in shifts:
        logs[shift:] += rng.choice([-1, 1]) * math.log1p(size)
    if kind == "drift":
        logs += rng.choice([-1, 1]) * rng.uniform(0.02, 0.10) * np.linspace(0, 1, count)
    if kind == "outliers":
        odd = rng.random(count) < _OUTLIERS
        logs += odd * rng.choice([-1, 1], count) * rng.uniform(0.05, 0.30, count)
    if kind == "bimodal nodes":
        logs += rng.uniform(2, 5) * noise * (rng.random(count) < rng.uniform(0.2, 0.5))
    if kind == "last-night outlier":
        logs[-1] += rng.choice([-1, 1]) * max(rng.uniform(0.05, 0.30), 5 * noise)
    nights = np.arange(count)
    if kind == "missing nights":
        kept = rng.random(count) > 0.2
        kept[list(shifts)] = True
        shifts = tuple(int(kept[:shift].sum()) for shift in shifts)
        logs, nights = logs[kept], nights[kept]
    return History(
        kind=kind,
        values=rng.uniform(0.01, 1.0) * np.exp(logs),
        nights=nights,
        noise=noise,
        size=size,
        shifts=shifts,
    )


def _draw_noise(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Standard deviation one, of every kind."""
    if kind == "heavy tails":
        return rng.standard_t(3, count) / math.sqrt(3)
    noise = rng.normal(size=count)
    if kind.startswith("correlated"):
        rho = float(kind.split()[1])
        for night in range(1, count):
            noise[night] = rho * noise[night - 1] + math.sqrt(1 - rho**2) * noise[night]
    if kind == "variance change":
        noise[int(count * rng.uniform(0.3, 0.7)) :] *= rng.choice([1 / 3, 1 / 2, 2, 3])
    return noise


def _place(rng: np.random.Generator, kind: str, count: int) -> tuple[int, ...]:
    if kind == "edge":
        return (count - int(rng.integers(3, 8)),)
    first = int(rng.integers(15, count - 30))
    if kind != "two shifts":
        return (first,) if rng.random() < 0.5 else (count - first,)
    return first, int(rng.integers(first + 15, count - 14))
