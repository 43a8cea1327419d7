"""Test whether the machine changed a ratio: today's level against the nights before the change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.thresholds import SMALLEST_SHIFT
from benchcore.verdict.samples import ALPHA, Judgement, Verdict, t_quantile, t_tail

LASTING_NIGHTS = 3
"""Nights at the new level before the machine can be the culprit: all starts of one night may share
a state that is gone the next."""


def judge_machine_level(
    levels: Sequence[float], history: HistoryLevels, smallest: float = SMALLEST_SHIFT
) -> Judgement | None:
    """Test whether the level of these starts is beyond `smallest` from the nights before.

    `levels` is log(T_b / T_a) of each start of one night, with today's environments. The starts of
    a night may share its state, so today counts as one night, with the nights' spread. The error
    combines that spread, the error of the old level, and the spread of the starts. `p` is for a
    change of at most `smallest`, by Student's t with the nights before as degrees of freedom.

    None if it can't be tested: the spread is unknown, the new level has lasted for less than
    `LASTING_NIGHTS`, or there are fewer than two starts.
    """
    if history.spread is None or history.num_after < LASTING_NIGHTS or len(levels) < 2:
        return None
    moved = float(np.mean(levels)) - history.before
    starts = float(np.std(levels, ddof=1)) / math.sqrt(len(levels))
    error = math.hypot(history.spread * math.sqrt(1 + 1 / history.num_before), starts)
    freedom, least = history.num_before - 1, math.log1p(smallest)
    if error == 0.0:
        return None
    p = min(1.0, 2 * t_tail((abs(moved) - least) / error, freedom))
    half = t_quantile(1 - ALPHA / 2, freedom) * error
    shift = history.after - history.before
    agrees = moved * shift > 0 and abs(shift) > least
    verdict: Verdict = "unknown"
    reason = f"the nights before spread by {math.expm1(history.spread):.1%}"
    if p <= ALPHA and agrees:
        verdict, reason = "different", f"beyond {smallest:.0%} from the nights before"
    elif abs(moved) <= least or (p <= ALPHA and not agrees):
        verdict, reason = "same", "as it was before"
    return Judgement(
        verdict=verdict, log_ratio=moved, low=moved - half, high=moved + half, p=p, reason=reason
    )
