"""What a release is certified: unchanged within a bound where that is shown, and never merely
because nothing was noticed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, judge_samples

Certificate = Literal["unchanged", "changed", "not shown"]
FEWEST_STARTS = 3


def certify(
    start_log_ratios: Sequence[float], bound: float = EQUIVALENCE_BOUND
) -> tuple[Certificate, Judgement]:
    """Of log(T_old / T_new), one a start: `unchanged` is shown by two one-sided tests at 5 %.

    Few starts can agree by chance, so they are taken to spread by half the bound at the least.
    """
    samples = np.array(start_log_ratios, float)
    if len(samples) < FEWEST_STARTS:
        reason = f"{len(samples)} starts of the {FEWEST_STARTS} it takes"
        return "not shown", Judgement(reason=reason)
    found = judge_samples(samples, bound, asked_first="same", least_spread=math.log1p(bound) / 2)
    said: dict[str, Certificate] = {"same": "unchanged", "different": "changed"}
    return said.get(found.verdict, "not shown"), found
