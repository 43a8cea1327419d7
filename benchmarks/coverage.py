"""How often the 95 % interval of a duel contains the truth: simulated starts of a known
distribution, with the real stopping rule and the real verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchcore.cell.stopping import PlayedStart, why_stop
from benchcore.protocol import DuelLimits
from benchcore.verdict.samples import Judgement
from benchcore.verdict.starts import judge_starts

_NAMES = ("a", "b")
LIMITS: Mapping[str, DuelLimits] = {
    "a night, one compilation": DuelLimits(max_starts=10, compilations=1),
    "a night": DuelLimits(max_starts=10),
    "compare": DuelLimits(starts=5, max_starts=20, compilations=5),
}
"""Of profiles and of `deadheat compare`; the target is 1 %, and time never ends a duel here."""
NOISES = (0.003, 0.01)
"""Standard deviation between starts of one compilation."""
_SLOW_SHARE, _SLOW = 0.1, math.log1p(0.05)
_MODE = math.log1p(0.02)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Log ratios of a duel's possible starts, by compilation and by start of that; and truths."""

    starts: np.ndarray
    truth: float
    """The mean over all compilations and starts."""
    within: np.ndarray
    """The mean of each compilation."""
    usual: float | None = None
    """The mean of starts that are not slow, where some are."""


def _offset(deviation: float) -> Callable[[np.random.Generator, tuple[int, int]], Draw]:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Draw:
        offsets = rng.normal(0, deviation, shape[0]) if deviation else np.zeros(shape[0])
        return Draw(starts=np.tile(offsets, (shape[1], 1)).T, truth=0.0, within=offsets)

    return draw


def _slow_starts(rng: np.random.Generator, shape: tuple[int, int]) -> Draw:
    starts = np.where(rng.random(shape) < _SLOW_SHARE, _SLOW, 0.0)
    mean = _SLOW_SHARE * _SLOW
    return Draw(starts=starts, truth=mean, within=np.full(shape[0], mean), usual=0.0)


def _two_modes(rng: np.random.Generator, shape: tuple[int, int]) -> Draw:
    starts = np.where(rng.random(shape) < 0.5, _MODE, 0.0)
    return Draw(starts=starts, truth=_MODE / 2, within=np.full(shape[0], _MODE / 2))


def _two_kernels(rng: np.random.Generator, shape: tuple[int, int]) -> Draw:
    offsets = np.where(rng.random(shape[0]) < 0.5, _MODE, 0.0)
    return Draw(starts=np.tile(offsets, (shape[1], 1)).T, truth=_MODE / 2, within=offsets)


KINDS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Draw]] = {
    "no offset": _offset(0.0),
    "0.3 % per compilation": _offset(0.003),
    "1 % per compilation": _offset(0.01),
    "two kernels, 2 % apart, per compilation": _two_kernels,
    "10 % of starts 5 % slower": _slow_starts,
    "two modes of starts, 2 % apart": _two_modes,
}


def measure(seed: int, trials: int) -> Iterator[dict[str, Any]]:
    """A row per limits, kind and noise: coverage of each truth, width and starts."""
    for name, limits in LIMITS.items():
        for kind, draw in KINDS.items():
            for noise in NOISES:
                rng = np.random.default_rng(seed)
                found = [_play(rng, limits, draw, noise) for _ in range(trials)]
                yield {
                    "limits": name,
                    "kind": kind,
                    "noise": noise,
                    "seed": seed,
                    "trials": trials,
                    **_rate(limits, found),
                }


_Played = tuple[Draw, Judgement, int]


def _play(
    rng: np.random.Generator,
    limits: DuelLimits,
    draw: Callable[[np.random.Generator, tuple[int, int]], Draw],
    noise: float,
) -> _Played:
    """One duel until it ends; its truths, its verdict and how many starts it took."""
    drawn = draw(rng, (limits.compilations, limits.most_starts))
    logs = drawn.starts + rng.normal(0, noise, drawn.starts.shape)
    starts: list[PlayedStart] = []
    while not starts or why_stop(limits, _NAMES, starts) is None:
        index = len(starts)
        compilation = limits.compilation_of(index)
        log = float(logs[compilation, index // limits.compilations])
        starts.append(
            PlayedStart(
                times={"a": {0: 1.0}, "b": {0: math.exp(log)}},
                seconds=0.0,
                compilations=dict.fromkeys(_NAMES, compilation),
            )
        )
    compilations = [limits.compilation_of(index) for index in range(len(starts))]
    judged = judge_starts(
        [math.log(start.times["b"][0]) for start in starts], compilations=compilations
    )
    return drawn, judged, len(starts)


def _rate(limits: DuelLimits, found: list[_Played]) -> dict[str, Any]:
    covered = [_contains(judged, drawn.truth) for drawn, judged, _ in found]
    error = stats.binomtest(sum(covered), len(covered)).proportion_ci(0.95)
    rates: dict[str, Any] = {
        "coverage": float(np.mean(covered)),
        "coverage_low": float(error.low),
        "coverage_high": float(error.high),
    }
    if limits.compilations == 1:
        own = [_contains(judged, float(drawn.within[0])) for drawn, judged, _ in found]
        rates["coverage of this compilation"] = float(np.mean(own))
    if found[0][0].usual is not None:
        usual = [_contains(judged, drawn.usual or 0.0) for drawn, judged, _ in found]
        rates["coverage of starts that are not slow"] = float(np.mean(usual))
    widths = [(judged.high or 0.0) - (judged.low or 0.0) for _, judged, _ in found]
    return {
        **rates,
        "half width": float(np.median(widths)) / 2,
        "starts": float(np.mean([count for _, _, count in found])),
    }


def _contains(judged: Judgement, truth: float) -> bool:
    assert judged.low is not None and judged.high is not None
    return judged.low <= truth <= judged.high
