"""Check that both sides of a training duel reach the same top-1 accuracy.

The same batches and network do not give the same bits: rounding errors grow until a run is like
one with another seed. So accuracies are compared with chance; the proof shows the same function.
"""

from __future__ import annotations

import math

import pandas as pd

from data_checks.rows import CheckFrames, list_pairs, name_rows

LIMIT_Z = 3.29
"""Limit of the pooled two-proportion z statistic: equal runs exceed it once in a thousand."""

_COLUMNS = ["duel_run", "a", "b", "correct_a", "correct_b", "num_val", "apart_z"]


def epoch_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per pair that trained on images: the difference of its last accuracies, in standard
    errors."""
    last = {
        (each["duel_run"], each["name"]): each
        for each in frames.epochs.sort_values("epoch").to_dict("records")
    }
    rows = []
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) in last and (duel_run, b) in last:
            one, other = last[duel_run, a], last[duel_run, b]
            correct, num_val = (one["correct"], other["correct"]), int(one["num_val"])
            rows.append([duel_run, a, b, *correct, num_val, accuracy_z(*correct, num_val)])
    return name_rows(pd.DataFrame(rows, columns=_COLUMNS), contender="a", other="b")


def accuracy_z(correct_a: float, correct_b: float, num_images: int) -> float:
    """The difference of two accuracies in standard errors; 0 if none or all images are right.

    Treats the two as independent samples. For the same images that is conservative.
    """
    pooled = (correct_a + correct_b) / (2 * num_images)
    error = math.sqrt(2 * pooled * (1 - pooled) / num_images)
    apart = abs(correct_a - correct_b) / num_images
    return apart / error if error else 0.0
