"""Noise of a series that is not independent from night to night, for `chain`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

STEADY = "independent nights"
KINDS = (
    "correlated", "two machines", "grows", "smooth variance", "weeks", "tails", "nightly modes",
)  # fmt: skip
_RHO = 0.5
_STAYS = (5, 15)
_STAY = 3
_GROWTH, _LAST = 3.0, 30


@dataclass(frozen=True, kw_only=True)
class Unsteadiness:
    """In units of a series' noise, by night: the standard deviation of each start's own part, and
    the part that all starts of a night share. `machine` is the number of the one that ran, of two
    machines that alternate."""

    scale: np.ndarray
    common: np.ndarray
    machine: np.ndarray | None = None


def draw(rng: np.random.Generator, kind: str, nights: int) -> Unsteadiness:
    """One of `KINDS` or `STEADY`.

    `correlated`: neighbouring nights by 0.5. `two machines` are 2 to 5 apart, and one stays for
    5 or 15 nights on average. `grows`: three times as much in the last 30 nights. `smooth
    variance`: from half to twice as much, over 90 to 200 nights. `weeks`: a sine of 7 nights, 1.2
    high. `tails`: exponential on one side in a quarter of nights. `nightly modes`, 3 to 6
    apart.
    """
    number, scale, common = np.arange(nights), np.ones(nights), np.zeros(nights)
    machine: np.ndarray | None = None
    if kind == "correlated":
        scale = np.zeros(nights)
        for night in number:
            before = common[night - 1] if night else rng.normal()
            common[night] = _RHO * before + math.sqrt(1 - _RHO**2) * rng.normal()
    elif kind == "two machines":
        moves = rng.random(nights) < 1 / rng.choice(_STAYS)
        machine = np.cumsum(moves) % 2
        common = rng.uniform(2, 5) * machine
    elif kind == "grows":
        scale = np.where(number >= nights - _LAST, _GROWTH, 1.0)
    elif kind == "smooth variance":
        phase = number / rng.uniform(90, 200) + rng.random()
        scale = np.exp(math.log(2) * np.sin(2 * math.pi * phase))
    elif kind == "weeks":
        common = 1.2 * np.sin(2 * math.pi * (number / 7 + rng.random()))
    elif kind == "tails":
        common = rng.exponential(1.5, nights) * (rng.random(nights) < 0.25)
    elif kind == "nightly modes":
        common = rng.uniform(3, 6) * (rng.random(nights) < rng.uniform(0.2, 0.5))
    return Unsteadiness(scale=scale, common=common, machine=machine)


def has_returned(machine: np.ndarray, night: int) -> bool:
    """Whether the machine that stays in this night stayed before, with another one since; fewer
    than `_STAY` nights in a row are not a stay."""
    ends = [0, *(np.flatnonzero(np.diff(machine[: night + 1])) + 1).tolist(), night + 1]
    stays = [int(machine[start]) for start, end in pairwise(ends) if end - start >= _STAY]
    return any(one != stays[-1] for one in stays[stays.index(stays[-1]) :]) if stays else False
