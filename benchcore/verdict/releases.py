"""Small changes that add up over releases, although no single one shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_RELEASES = 8
"""Releases that are added up at most."""
_WIDER = 2.576 / 1.960
"""From 95 to 99 %: every number of releases is looked at, at every release."""


@dataclass(frozen=True, kw_only=True)
class ReleaseStep:
    """What one release did to one metric of a case: log ratio, above 0 = better, and the half width
    of its 95 % interval."""

    new: str
    old: str
    log_ratio: float
    half_width: float


@dataclass(frozen=True, kw_only=True)
class ReleaseTrend:
    """The sum of the newest releases' changes since the version `since`, with its 99 % interval."""

    since: str
    num_releases: int
    log_ratio: float
    low: float
    high: float


def find_trend(steps: Sequence[ReleaseStep], smallest: float) -> ReleaseTrend | None:
    """The sum over the newest releases, at least two, that is surest beyond the `smallest` relative
    change that matters; None = none is.

    `steps` are consecutive, newest first. Their errors are independent: each pair of versions was
    measured in duels of its own.
    """
    found: list[tuple[float, ReleaseTrend]] = []
    total, square = 0.0, 0.0
    for number, step in enumerate(steps[:MOST_RELEASES], start=1):
        total += step.log_ratio
        square += (_WIDER * step.half_width) ** 2
        beyond = abs(total) - math.sqrt(square) - math.log1p(smallest)
        if number > 1 and beyond > 0:
            half = math.sqrt(square)
            trend = ReleaseTrend(
                since=step.old,
                num_releases=number,
                log_ratio=total,
                low=total - half,
                high=total + half,
            )
            found.append((beyond, trend))
    return max(found, key=lambda each: each[0])[1] if found else None
