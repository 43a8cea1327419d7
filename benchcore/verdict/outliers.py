"""Which single operation is an outlier: what a whole model would average away."""

from __future__ import annotations

import math
from typing import Literal

SINGLE_OPERATIONS = ("convolution",)
"""Workloads of one operation of a model each."""
OUTLIER = 2.0
"""How many times as long one side must take, at the interval's nearer end. Known ones: depthwise
convolutions at 3 times (pytorch#157334), weight gradients at 30 (openxla/xla#34273)."""


def find_slower(workload: str, low: float | None, high: float | None) -> Literal["a", "b"] | None:
    """The side of a pair that takes more than OUTLIER times the other's time, with its whole 95 %
    interval; `low` and `high` are its ends, in log(b / a)."""
    if workload not in SINGLE_OPERATIONS or low is None or high is None:
        return None
    if low > math.log(OUTLIER):
        return "b"
    return "a" if high < -math.log(OUTLIER) else None
