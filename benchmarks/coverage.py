"""How often the 95 % interval of a duel contains the truth: simulated starts of a known
distribution, with the real stopping rule and the real verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from benchcore.cell.stopping import FinishedStart, why_stop
from benchcore.protocol import DuelLimits
from benchcore.verdict.samples import Judgement
from benchcore.verdict.starts import StartsOfDuel, judge_starts

_NAMES = ("a", "b")
LIMITS: Mapping[str, DuelLimits] = {
    "a night, one compilation": DuelLimits(max_starts=10, compilations=1),
    "a night": DuelLimits(max_starts=10),
    "compare": DuelLimits(starts=5, max_starts=20, compilations=5),
    "five starts": DuelLimits(starts=5, max_starts=5, compilations=5),
}
"""Those of profiles, of `deadheat compare`, and of a confirmation's first look, in which each start
compiles; the target is 1 %, and time never ends a duel here."""
NOISES = (0.003, 0.01)
"""Standard deviation between starts of one compilation."""
_SLOW_SHARE, _SLOW = 0.1, math.log1p(0.05)
_MODE = math.log1p(0.02)
_EARLIER, _MODERATED = 20, 600
"""Earlier duels that inform a verdict, and the verdicts at the end of each row that they inform."""
_DIFFERENCE = math.log1p(0.02)


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


def _offset(deviation: float) -> _Kind:
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


_Kind = Callable[[np.random.Generator, tuple[int, int]], Draw]
KINDS: Mapping[str, _Kind] = {
    "no offset": _offset(0.0),
    "0.3 % per compilation": _offset(0.003),
    "1 % per compilation": _offset(0.01),
    "two kernels, 2 % apart, per compilation": _two_kernels,
    "10 % of starts 5 % slower": _slow_starts,
    "two modes of starts, 2 % apart": _two_modes,
}


def measure(
    seed: int, trials: int, limits_by_name: Mapping[str, DuelLimits] | None = None
) -> Iterator[dict[str, Any]]:
    """A row per limits (None = `LIMITS`), kind and noise: coverage of each truth, width, power and
    starts; and what earlier duels change."""
    for name, limits in (limits_by_name or LIMITS).items():
        played = {
            (kind, noise): _play_all(seed, limits, draw, noise, trials)
            for kind, draw in KINDS.items()
            for noise in NOISES
        }
        others = [duel for found in played.values() for duel in found]
        for (kind, noise), found in played.items():
            quieter = played[kind, min(NOISES)] if noise > min(NOISES) else None
            yield {
                "limits": name,
                "kind": kind,
                "noise": noise,
                "seed": seed,
                "trials": trials,
                **_rate(limits, found),
                **_rate_moderated(seed, found, others, quieter),
            }


@dataclass(frozen=True, kw_only=True)
class Played:
    """A duel that ended: its truths, its starts with their compilations, and its verdict."""

    drawn: Draw
    starts: StartsOfDuel
    judged: Judgement


def _play_all(
    seed: int, limits: DuelLimits, draw: _Kind, noise: float, trials: int
) -> list[Played]:
    rng = np.random.default_rng(seed)
    return [_play(rng, limits, draw, noise) for _ in range(trials)]


def _rate_moderated(
    seed: int, found: list[Played], others: list[Played], quieter: list[Played] | None
) -> dict[str, Any]:
    """Coverage, width and power where `_EARLIER` duels inform the variance: the duels before of the
    same kind; those of all kinds, as a device's other cases would; and quieter ones, as if the
    noise had grown since. Power: of a difference of 2 %, the share of intervals without 0."""
    rng = np.random.default_rng(seed)
    first = len(found) - _MODERATED if len(found) > _MODERATED + _EARLIER else _EARLIER
    rates: dict[str, Any] = {"power at 2%": _find_power(found[first:])}
    sources: dict[str, Callable[[int], list[Played]]] = {
        "earlier": lambda number: found[number - _EARLIER : number],
        "other cases": lambda _: [
            others[each] for each in rng.integers(len(others), size=_EARLIER)
        ],
    }
    if quieter is not None:
        sources["quieter"] = lambda number: quieter[number - _EARLIER : number]
    for name, choose in sources.items():
        moderated = [
            replace(duel, judged=_judge(duel.starts, [each.starts for each in choose(number)]))
            for number, duel in enumerate(found[first:], start=first)
        ]
        covered = [_contains(each.judged, each.drawn.truth) for each in moderated]
        rates[f"coverage, {name}"] = float(np.mean(covered))
        rates[f"half width, {name}"] = _find_half_width(moderated)
        rates[f"power at 2%, {name}"] = _find_power(moderated)
    return rates


def _find_power(found: list[Played]) -> float:
    moved = [(each.judged, each.drawn.truth - _DIFFERENCE) for each in found]
    return float(np.mean([not _contains(judged, without) for judged, without in moved]))


def _find_half_width(found: list[Played]) -> float:
    widths = [(each.judged.high or 0.0) - (each.judged.low or 0.0) for each in found]
    return float(np.median(widths)) / 2


def _judge(starts: StartsOfDuel, earlier: list[StartsOfDuel]) -> Judgement:
    logs, compilations = starts
    return judge_starts(logs, compilations=compilations, earlier=earlier)


def _play(rng: np.random.Generator, limits: DuelLimits, draw: _Kind, noise: float) -> Played:
    """One duel until it ends."""
    drawn = draw(rng, (limits.compilations, limits.most_starts))
    logs = drawn.starts + rng.normal(0, noise, drawn.starts.shape)
    starts: list[FinishedStart] = []
    while not starts or why_stop(limits, _NAMES, starts) is None:
        index = len(starts)
        compilation = limits.compilation_of(index)
        log = float(logs[compilation, index // limits.compilations])
        starts.append(
            FinishedStart(
                times={"a": {0: 1.0}, "b": {0: math.exp(log)}},
                seconds=0.0,
                compilations=dict.fromkeys(_NAMES, compilation),
            )
        )
    compilations = [limits.compilation_of(index) for index in range(len(starts))]
    of_starts = ([math.log(start.times["b"][0]) for start in starts], compilations)
    return Played(drawn=drawn, starts=of_starts, judged=_judge(of_starts, []))


def _rate(limits: DuelLimits, found: list[Played]) -> dict[str, Any]:
    covered = [_contains(each.judged, each.drawn.truth) for each in found]
    error = stats.binomtest(sum(covered), len(covered)).proportion_ci(0.95)
    rates: dict[str, Any] = {
        "coverage": float(np.mean(covered)),
        "coverage_low": float(error.low),
        "coverage_high": float(error.high),
    }
    if limits.compilations == 1:
        own = [_contains(each.judged, float(each.drawn.within[0])) for each in found]
        rates["coverage of this compilation"] = float(np.mean(own))
    if found[0].drawn.usual is not None:
        usual = [_contains(each.judged, each.drawn.usual or 0.0) for each in found]
        rates["coverage of starts that are not slow"] = float(np.mean(usual))
    return {
        **rates,
        "half width": _find_half_width(found),
        "starts": float(np.mean([len(each.starts[0]) for each in found])),
    }


def _contains(judged: Judgement, truth: float) -> bool:
    assert judged.low is not None and judged.high is not None
    return judged.low <= truth <= judged.high
