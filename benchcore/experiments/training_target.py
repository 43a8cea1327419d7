"""How long each side of a training took to reach an accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchcore.verdict.samples import judge_samples


def find_times(document: Mapping[str, Any], target: float, why_not: str = "") -> dict[str, Any]:
    """The seconds of training, in each start of both sides, until an epoch's accuracy on the
    validation images is at least `target`; None = never. Validation itself is not counted.

    `ratio` is how many times as fast a is as b over the starts in which both arrived, and why there
    is none, such as `why_not`. All starts begin with the same weights and see the same batches.
    """
    num_val = document["duel"]["dataset"]["num_val"]
    a, b = (
        [_find_time(start, target * num_val) for start in side["starts"]]
        for side in document["contenders"][:2]
    )
    return {"target": target, "a": a, "b": b, "ratio": _judge(a, b, why_not)}


def _find_time(start: Mapping[str, Any], least_correct: float) -> float | None:
    total_ns = 0
    for block, epoch in zip(start["blocks"], start["epochs"] or (), strict=True):
        total_ns += block["elapsed_ns"]
        if epoch["correct"] >= least_correct - 1e-9:
            return total_ns / 1e9
    return None


def _judge(a: Sequence[float | None], b: Sequence[float | None], why_not: str) -> dict[str, Any]:
    pairs = list(zip(a, b, strict=False))
    logs = [math.log(slow / fast) for fast, slow in pairs if fast and slow]
    if why_not or len(logs) < len(pairs) or len(logs) < 2:
        reason = why_not or f"both sides arrived in {len(logs)} of {len(pairs)} starts"
        return {"verdict": "unknown", "reason": reason, "ratio": None, "low": None, "high": None}
    found = judge_samples(np.array(logs), prefer="same")
    return {"verdict": found.verdict, "reason": found.reason, **found.ratios}
