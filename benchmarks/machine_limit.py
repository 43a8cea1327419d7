"""What a test that knows everything finds of a machine's shifts: `chain` can hardly find more.

It knows what no real test can: each series' noise, modes and outliers, the level before, and the
size of a change, and it reads the state of a night without error. It sums the likelihood ratios of
a change in each earlier night, which detects soonest at a given rate of false alarms (Roberts 1966,
Pollak 1985). One threshold for all series gives 0.1 false alarms per 1,000 series-nights. The
starts of a night share its state here, so measuring again that night adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import chain
import numpy as np
from scipy.special import ndtr

_GOAL = 1e-4
_BEFORE, _NULL = 30, 60
_DELAYS = (3, 9)


@dataclass(frozen=True, kw_only=True)
class _States:
    """Nights (rows) of series (columns), with what determines each series' noise."""

    noise: np.ndarray
    share: np.ndarray
    apart: np.ndarray
    values: np.ndarray


def measure(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """A row per size: the share of shifts found within 3 and 9 nights, in series with one mode of
    each noise and in all, over `count` series."""
    rng = np.random.default_rng(seed)
    for size in map(math.log1p, chain.SIZES):
        limit = _find_limit(_draw(rng, count, _NULL), size)
        states = _draw(rng, count, _BEFORE + max(_DELAYS) + 1)
        states.values[_BEFORE:] += size
        alarms = _list_alarms(states, size, limit)[_BEFORE:]
        row: dict[str, Any] = {"size": math.expm1(size), "seed": seed, "series": count}
        for delay in _DELAYS:
            found = alarms[: delay + 1].any(axis=0)
            row[f"found in {delay} nights"] = float(found.mean())
            for noise in chain.NOISES:
                alike = found[(states.noise == noise) & (states.apart == 0)]
                row[f"in {delay}, {noise:.1%}"] = float(alike.mean())
        yield row


def _draw(rng: np.random.Generator, count: int, nights: int) -> _States:
    """As `chain` draws its series and the states of their nights."""
    noise = np.resize(chain.NOISES, count)
    bimodal = rng.random(count) < chain.BIMODAL
    apart = bimodal * rng.uniform(*chain.APART, count) * noise
    share = bimodal * rng.uniform(*chain.SHARE, count)
    values = rng.normal(size=(nights, count)) * noise
    values += apart * (rng.random(values.shape) < share)
    off = rng.choice([-1, 1], values.shape) * rng.uniform(*chain.OFF, values.shape)
    values += off * (rng.random(values.shape) < chain.OUTLIERS)
    return _States(noise=noise, share=share, apart=apart, values=values)


def _density(states: _States, values: np.ndarray) -> np.ndarray:
    """Density of values of an unchanged series."""
    modes = (1 - states.share, values), (states.share, values - states.apart)
    return np.sum([share * _one_mode(each, states.noise) for share, each in modes], axis=0)


def _one_mode(values: np.ndarray, noise: np.ndarray) -> np.ndarray:
    low, high = chain.OFF
    near = np.exp(-0.5 * (values / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
    beyond = ndtr((np.abs(values) - low) / noise) - ndtr((np.abs(values) - high) / noise)
    mixed = (1 - chain.OUTLIERS) * near + chain.OUTLIERS * beyond / 2 / (high - low)
    return np.maximum(mixed, 1e-100)


def _list_alarms(states: _States, size: float, limit: float) -> np.ndarray:
    """The nights in which the sum exceeds the limit; it starts at zero again after each."""
    plain = _density(states, states.values)
    ratios = [_density(states, states.values - way * size) / plain for way in (1, -1)]
    sums, alarms = [np.zeros(len(states.noise))] * 2, np.zeros(states.values.shape, bool)
    for night in range(len(alarms)):
        grown = [(1 + each) * of[night] for each, of in zip(sums, ratios, strict=True)]
        sums = [np.minimum(each, 1e100) for each in grown]
        alarms[night] = (sums[0] + sums[1]) / 2 > limit
        sums = [np.where(alarms[night], 0.0, each) for each in sums]
    return alarms


def _find_limit(states: _States, size: float) -> float:
    """The lowest limit with no more false alarms than the goal."""
    low, high = 0.0, 20.0
    while high - low > 0.1:
        middle = (low + high) / 2
        false = _list_alarms(states, size, math.exp(middle)).mean()
        low, high = (low, middle) if false <= _GOAL else (middle, high)
    return math.exp(high)
