"""Test whether the machine changed a ratio: today's level against the nights before the change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.thresholds import LASTING_NIGHTS, SMALLEST_SHIFT
from benchcore.verdict.samples import ALPHA, Judgement, Verdict, t_quantile, t_tail


def judge_machine_level(
    levels: Sequence[float], history: HistoryLevels, smallest: float = SMALLEST_SHIFT
) -> Judgement | None:
    """Test whether the level of these starts is beyond `smallest` from the nights before.

    `levels` is log(T_b / T_a) of each start of one night, with today's environments. The starts of
    a night can share its state, so they count as one night more, beside those that came since the
    suspicion was opened; these were not chosen for what they show. The error is that of the nights'
    spread, before and since, and of the starts. `p` is of a change no larger than `smallest`, by
    Student's t with the freedom of the nights before.

    None if it can't be tested: the spread is unknown, the new level has lasted for less than
    `LASTING_NIGHTS`, or there are fewer than two starts.
    """
    if history.spread is None or history.num_after < LASTING_NIGHTS or len(levels) < 2:
        return None
    since = [*history.fresh[:-1], float(np.mean(levels))]
    moved = float(np.mean(since)) - history.before
    starts = float(np.std(levels, ddof=1)) / math.sqrt(len(levels)) / len(since)
    nights = history.spread * math.sqrt(
        history.share(history.num_before) + history.share(len(since))
    )
    error = math.hypot(nights, starts)
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
