"""Detect change points in a series that has values at or below zero, on a linear scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.history.detect import Edge, Shift, detect_shifts

_LARGEST = 300.0
"""The largest value in units of the scale: its exponential must stay a float."""


@dataclass(frozen=True, kw_only=True)
class LinearShift:
    """A new level from row `index` on. Levels, `difference` and its 95 % interval `low` to `high`
    are in the values' unit."""

    index: int
    before: float
    after: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LinearEdge:
    """A deviation at the end of a series, in the values' unit."""

    index: int
    difference: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class LinearDetection:
    """As `Detection`, with differences in place of ratios. `drift` is one, too."""

    shifts: tuple[LinearShift, ...] = ()
    edges: tuple[LinearEdge, ...] = ()
    drift: float | None = None
    unknown: str = ""


def detect_linear_shifts(
    values: np.ndarray, nights: np.ndarray | None = None, smallest_shift: float = 0.01
) -> LinearDetection:
    """Shifts of a series of any sign; NaN = not measured, `nights` as for `detect_shifts`.

    The scale is the median size of a value: `smallest_shift` is a share of it, where a ratio has no
    meaning.
    """
    sizes = np.abs(values[~np.isnan(values)])
    scale = max(float(np.median(sizes)), float(sizes.max()) / _LARGEST) if len(sizes) else 1.0
    found = detect_shifts(np.exp(values / (scale or 1.0)), nights, smallest_shift)
    return LinearDetection(
        shifts=tuple(_scale_shift(each, scale) for each in found.shifts),
        edges=tuple(_scale_edge(each, scale) for each in found.edges),
        drift=None if found.drift is None else scale * math.log(found.drift),
        unknown=found.unknown,
    )


def _scale_shift(shift: Shift, scale: float) -> LinearShift:
    return LinearShift(
        index=shift.index,
        before=scale * math.log(shift.before),
        after=scale * math.log(shift.after),
        difference=scale * math.log(shift.ratio),
        low=scale * math.log(shift.low),
        high=scale * math.log(shift.high),
    )


def _scale_edge(edge: Edge, scale: float) -> LinearEdge:
    difference = scale * math.log(edge.ratio)
    return LinearEdge(index=edge.index, difference=difference, reason=edge.reason)
