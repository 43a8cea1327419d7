"""Simulated fresh starts of old and new environments, and how often the right culprit is named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchcore.verdict.confirmation.decide import LOOKS, Finding, Start, decide
from benchcore.verdict.history.levels import HistoryLevels

CELLS = ("a_old", "a_new", "b_old", "b_new", "control")
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
_LEVEL = 0.2


@dataclass(frozen=True, kw_only=True)
class Suspected:
    """A suspicion with a known culprit, with the starts of all looks."""

    culprit: str
    effect: float
    starts: Sequence[Start]


def simulate(seed: int, repeats: int) -> Iterator[Suspected]:
    """Machines differ by 3 % from start to start, two environments' ratio by `effect`, and a time
    by 0.3 %; the history suggested that the ratio moved by 3 %."""
    rng = np.random.default_rng(seed)
    for culprit, effect, number in product(TRUTHS, EFFECTS, range(repeats)):
        sign = 1 if number % 2 else -1
        moved = {cell: math.log1p(sign * size) for cell, size in TRUTHS[culprit].items()}
        yield Suspected(
            culprit=culprit,
            effect=effect,
            starts=[_start(rng, moved, effect) for _ in range(LOOKS[-1])],
        )


def _start(rng: np.random.Generator, moved: Mapping[str, float], effect: float) -> Start:
    shared = rng.normal(0, _SHARED)
    own = rng.normal(0, effect / math.sqrt(2), len(CELLS))
    start = {}
    for cell, of_cell in zip(CELLS, own, strict=True):
        level = shared + of_cell + moved.get(cell, 0.0) + (_LEVEL if cell[0] == "b" else 0.0)
        times = np.exp(level + rng.normal(0, _WITHIN, _ROUNDS))
        start[cell] = dict(enumerate(times))
    return start


def confirm(suspected: Suspected) -> Finding:
    """Decide a suspicion look by look, as the only one of its night."""
    levels = HistoryLevels(before=_LEVEL, after=_LEVEL + 0.03)
    for look in LOOKS:
        final = look == LOOKS[-1]
        (found,) = decide([(suspected.starts[:look], levels)], final=final)
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
