"""Test whether the machine moved a ratio: today's level against the nights before the change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.thresholds import SMALLEST_SHIFT
from benchcore.verdict.samples import ALPHA, Judgement, Verdict, t_quantile, t_tail

LASTING_NIGHTS = 3
"""Nights at the new level before the machine can be blamed: all starts of one night may share a
state that is gone the next."""


def judge_machine_level(
    levels: Sequence[float], asked: HistoryLevels, smallest: float = SMALLEST_SHIFT
) -> Judgement | None:
    """Test whether the level of these starts is beyond `smallest` from the nights before.

    `levels` is log(T_b / T_a) of each start of one night, with today's environments. The starts of
    a night can share its state, so today is one night more, with the spread that nights have. The
    error is that spread, the error of the old level, and what the starts spread. `p` is of a change
    no larger than `smallest`, by Student's t with the freedom of the nights before.

    None where it can't be tested: the spread is unknown, the new level has lasted for less than
    `LASTING_NIGHTS`, or there are fewer than two starts.
    """
    if asked.spread is None or asked.num_after < LASTING_NIGHTS or len(levels) < 2:
        return None
    moved = float(np.mean(levels)) - asked.before
    starts = float(np.std(levels, ddof=1)) / math.sqrt(len(levels))
    error = math.hypot(asked.spread * math.sqrt(1 + 1 / asked.num_before), starts)
    freedom, least = asked.num_before - 1, math.log1p(smallest)
    if error == 0.0:
        return None
    p = min(1.0, 2 * t_tail((abs(moved) - least) / error, freedom))
    half = t_quantile(1 - ALPHA / 2, freedom) * error
    agrees = moved * (asked.after - asked.before) > 0 and abs(asked.after - asked.before) > least
    verdict: Verdict = "unknown"
    reason = f"the nights before spread by {math.expm1(asked.spread):.1%}"
    if p <= ALPHA and agrees:
        verdict, reason = "different", f"beyond {smallest:.0%} from the nights before"
    elif abs(moved) <= least or (p <= ALPHA and not agrees):
        verdict, reason = "same", "as it was before"
    return Judgement(
        verdict=verdict, log_ratio=moved, low=moved - half, high=moved + half, p=p, reason=reason
    )
