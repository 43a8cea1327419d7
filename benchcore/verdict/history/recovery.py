"""Find whether a confirmed change is gone: whether the last nights are back at the level before."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from benchcore.verdict.history.detect import Detection
from benchcore.verdict.history.levels import (
    CERTAIN,
    KNOWN_NIGHTS,
    NEAR_SHARE,
    SuspectedNights,
    measure_levels,
)
from benchcore.verdict.history.series import METHOD_CONDITION, Night, Series


def find_recovery(
    series: Series,
    nights: SuspectedNights,
    move: float,
    found: Detection | None = None,
    *,
    of_machine: bool = False,
) -> Night | None:
    """The first of the last nights that are back at the level before a change of log(T_b / T_a) by
    `move`. They must be `KNOWN_NIGHTS` or more, certainly off the new level and near the old one.

    What bridges took from the nights counts if the change was `of_machine`: a bridge takes out just
    that. Then nights of another METHOD show nothing. None = it is not gone, as far as is known.
    """
    rows = series.list_rows()
    if not {nights.before, nights.since, nights.after} <= rows.keys():
        return None
    first, after = series.nights[rows[nights.before]], rows[nights.after] + 1
    later = series.nights[after:]
    methods = {night.conditions.get(METHOD_CONDITION) for night in (first, *later)}
    if len(later) < KNOWN_NIGHTS or (of_machine and len(methods) > 1):
        return None
    lasting = nights.trigger if nights.trigger in ("drift", "bridge") else "shift"
    levels = measure_levels(series, replace(nights, trigger=lasting), found)
    logs = np.array([night.log_ratio for night in later])
    if of_machine:
        logs += np.array([night.bridged - first.bridged for night in later])
    back = _count_back(logs - levels.before, move)
    if back < KNOWN_NIGHTS or levels.spread is None:
        return None
    level = float(np.median(logs[-back:])) - levels.before
    error = levels.spread * math.sqrt(levels.share(back))
    is_certain = abs(level - move) >= CERTAIN * error
    return later[-back] if is_certain and abs(level) <= NEAR_SHARE * abs(move) else None


def _count_back(moves: np.ndarray, move: float) -> int:
    """The last nights in a row that moved by less than half of `move`, by medians of three."""
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(moves, 3), axis=1)
    away = np.flatnonzero(smooth * np.sign(move) >= abs(move) / 2)
    return len(moves) - int(away[-1]) - 2 if len(away) else len(moves)
