"""Simulated fresh starts of old and new environments, and how often the right culprit is named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import numpy as np

from benchcore.verdict.confirmation.decide import LOOKS, Finding, Start, decide
from benchcore.verdict.confirmation.error_rates import CELLS
from benchcore.verdict.confirmation.machine_check import PROBES
from benchcore.verdict.history.detect import detect_shifts
from benchcore.verdict.history.levels import HistoryLevels, SuspectedNights, measure_levels
from benchcore.verdict.history.series import Night, Series, SeriesKey
from benchcore.verdict.history.suspicions import suspect

TRUTHS: Mapping[str, Mapping[str, float]] = {
    "nothing": {},
    "a": {"a_new": 0.03},
    "b": {"b_new": 0.03},
    "both": {"a_new": 0.03, "b_new": -0.03},
    "infrastructure": {"control": 0.05},
}
"""By culprit: how much longer each cell takes; in half of the runs, shorter."""
EFFECTS = (0.0, 0.005, 0.01)
_SHARED = 0.03
_WITHIN = 0.003
_ROUNDS = 6
_SLOW_SHARE, _SLOWER, _SLOW_MOVES = 0.25, (0.05, 0.4), 0.08
_OF_PROBE = 0.01
"""Spread of a probe's rounds."""
_LEVEL = 0.2
_NIGHTS, _RELEASE = 40, 37
_OFF, _APART, _SHARE = (0.02, 0.10), 4.0, 0.3
"""Of the histories that changed nothing: the nights, the first one with a new environment, how far
the last night may be off, and in every other history the distance of a second mode in standard
deviations and its share of nights."""
_KEY = SeriesKey(
    workload="simulated",
    case_name="null",
    track="default",
    a_arm="jax-jit",
    b_arm="torch-eager",
    device_fingerprint="0" * 16,
)


@dataclass(frozen=True, kw_only=True)
class Suspected:
    """A suspicion with a known culprit, with the starts of all looks."""

    culprit: str
    effect: float
    starts: Sequence[Start]
    levels: HistoryLevels


def simulate(seed: int, repeats: int) -> Iterator[Suspected]:
    """Machines differ by 3 % from start to start, two environments' ratio by `effect`, and a time
    by 0.3 %. The history suggested that the ratio moved by 3 %; where nothing did, it is one that
    raised a suspicion all the same."""
    rng = np.random.default_rng(seed)
    for culprit, effect, number in product(TRUTHS, EFFECTS, range(repeats)):
        sign = 1 if number % 2 else -1
        moved = {cell: math.log1p(sign * size) for cell, size in TRUTHS[culprit].items()}
        levels = HistoryLevels(before=_LEVEL, after=_LEVEL + 0.03)
        yield Suspected(
            culprit=culprit,
            effect=effect,
            starts=[_start(rng, moved, effect) for _ in range(LOOKS[-1])],
            levels=levels if moved else _draw_null_levels(rng, effect, bool(number % 2)),
        )


def simulate_slow(seed: int, repeats: int) -> Iterator[Suspected]:
    """Suspicions with a probe of the machine. A quarter of their starts run on a machine that
    copies 5 to 40 % slower. Nothing moved, but such a machine moves the new environment by 8 %; or
    side b moved by 3 %, whatever the machine."""
    rng = np.random.default_rng(seed)
    for culprit, _ in product(("nothing", "b"), range(repeats)):
        starts: list[Start] = []
        for _ in range(LOOKS[-1]):
            slower = rng.uniform(*_SLOWER) if rng.random() < _SLOW_SHARE else 0.0
            moved = TRUTHS["b"] if culprit == "b" else {"b_new": _SLOW_MOVES * (slower > 0)}
            start = _start(rng, moved, EFFECTS[1])
            probes = {name: slower * (name == "copy") for name in PROBES}
            start |= {name: _draw_probe(rng, level) for name, level in probes.items()}
            starts.append(start)
        levels = HistoryLevels(before=_LEVEL, after=_LEVEL + 0.03)
        yield Suspected(culprit=culprit, effect=EFFECTS[1], starts=starts, levels=levels)


def _draw_probe(rng: np.random.Generator, level: float) -> dict[int, float]:
    return dict(enumerate(np.exp(level + rng.normal(0, _OF_PROBE, _ROUNDS)).tolist()))


def _draw_null_levels(rng: np.random.Generator, effect: float, bimodal: bool) -> HistoryLevels:
    """The levels of the first unchanged history that raises a suspicion; half of the last nights
    are outliers, and both environments are new near the end."""
    while True:
        logs = _LEVEL + max(effect, _WITHIN) * rng.normal(size=_NIGHTS)
        logs += bimodal * _APART * max(effect, _WITHIN) * (rng.random(_NIGHTS) < _SHARE)
        logs[-1] += rng.choice([-1, 0, 0, 1]) * rng.uniform(*_OFF)
        series = _make_series(logs)
        shown = detect_shifts(series.values)
        for found in suspect(series, None, shown)[-1:]:
            names = {name: getattr(found, name).duel_run for name in ("before", "since", "after")}
            return measure_levels(series, SuspectedNights(trigger=found.trigger, **names), shown)


def make_night(number: int, log: float, a: str, b: str, **more: Any) -> Night:
    """The night of that number, with these environments."""
    return Night(
        key=_KEY,
        at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number),
        duel_run=str(number),
        log_ratio=log,
        a_environment=a,
        b_environment=b,
        a="a",
        b="b",
        **more,
    )


def _make_series(logs: np.ndarray) -> Series:
    nights = [
        make_night(row, float(log), f"a{row >= _RELEASE}", f"b{row >= _RELEASE}")
        for row, log in enumerate(logs)
    ]
    return Series(key=_KEY, nights=tuple(nights))


def _start(
    rng: np.random.Generator, moved: Mapping[str, float], effect: float
) -> dict[str, Mapping[int, float]]:
    shared = rng.normal(0, _SHARED)
    own = rng.normal(0, effect / math.sqrt(2), len(CELLS))
    start: dict[str, Mapping[int, float]] = {}
    for cell, of_cell in zip(CELLS, own, strict=True):
        level = shared + of_cell + moved.get(cell, 0.0) + (_LEVEL if cell[0] == "b" else 0.0)
        times = np.exp(level + rng.normal(0, _WITHIN, _ROUNDS))
        start[cell] = dict(enumerate(times))
    return start


def confirm(suspected: Suspected) -> Finding:
    """Decide a suspicion look by look, as the only one of its night."""
    for look in LOOKS:
        final = look == LOOKS[-1]
        (found,) = decide([(suspected.starts[:look], suspected.levels)], final=final)
        if found.verdict != "more":
            return found
    raise AssertionError("the last look decides")


def rate(suspected: Sequence[Suspected], findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One row per truth and effect: shares of verdicts, starts, and named culprits."""
    rows = []
    for culprit, effect in product(TRUTHS, EFFECTS):
        of_row = [
            found
            for each, found in zip(suspected, findings, strict=True)
            if (each.culprit, each.effect) == (culprit, effect)
        ]
        confirmed = [found.culprit for found in of_row if found.verdict == "confirmed"]
        rows.append(
            {
                "truth": culprit,
                "effect": effect,
                "trials": len(of_row),
                "confirmed": len(confirmed) / len(of_row),
                "refuted": _share(of_row, "refuted"),
                "unknown": _share(of_row, "unknown"),
                "mean starts": float(np.mean([found.num_starts for found in of_row])),
                "right of the confirmed": (
                    confirmed.count(culprit) / len(confirmed)  # type: ignore[arg-type]
                    if confirmed
                    else None
                ),
            }
        )
    return rows


def _share(findings: Sequence[Finding], verdict: str) -> float:
    return sum(found.verdict == verdict for found in findings) / len(findings)
