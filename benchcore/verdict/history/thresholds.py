"""When a history raises a suspicion: the thresholds, with units and reasons.

Shares and counts of nights. What differs between metrics is in `SeriesScale`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FEWEST_NIGHTS = 10
"""Nights that a series needs before it is judged: with fewer, its noise is unknown."""

# Trigger `shift`: a new level.
SMALLEST_SHIFT = 0.01
"""Relative change of a step time's level below which there is no shift and no edge, even if
significant: quiet series show differences that are too small to matter."""
LEAST_NOISE = 1e-4
"""No clock repeats better than 0.01 %; gives a constant history some noise."""
SHIFT_MARGIN = 5.8
"""Added to BIC's 2 log n per shift, in units of the noise's variance. Tuned on simulated
histories (benchmarks/verdicts.md)."""
SAME_SHIFT_NIGHTS = 5
"""Nights, missing ones included, by which the place of a known shift may change as more come in."""
RAMP_NIGHTS = 8
"""Nights within which several steps one way are one shift that came in stages."""
HISTORY_DAYS = 500
"""Days before the newest night that suspicions rest on: drift compares with the first night of the
quarter a year ago. Nights cost the same however old the database is."""
GONE_NIGHTS = 30
"""Nights in which something else was measured, but not a series, after which its undecided
suspicions end: its device, case or arm is gone. Longer than a week or a month that skips a case."""
SPELL_NIGHTS, SPELL_GAIN = 9, 3.0
"""A level that was left again within this many nights is a spell of noise, as where the noise grows
and falls smoothly, unless both of its steps gain this many times the penalty."""
UNSURE_NIGHTS = 2
"""Nights on either side of a shift that may belong to the other level."""

# Trigger `edge`: the last nights.
EDGE_DEVIATIONS = 4.0
"""Standard deviations from its level beyond which the last night is a suspicion."""

# Shifts and edges: how long a level must last.
LASTING_NIGHTS = 3
"""Nights at a new level before it is a shift and no edge, and before the machine can be its cause:
all starts of one night may share a state that ends with it, and two nights may be outliers."""

# Trigger `version`: a new environment.
VERSION_ALPHA = 0.2
"""How often an unchanged night is a suspicion because its environment is new, where the nights
before it spread so much that they set the threshold. Fresh starts decide, so it is not strict."""
EXCLUDED_ALPHA = 0.05
"""How often nights may exclude, on either side, a change that a new environment brought (two
one-sided tests). Chosen on seeds 15 and 16 of `chain`: 0.1 missed one of their 36 shifts."""
VERSION_NIGHTS = 14
"""Last nights in which a new environment is a suspicion."""
VERSION_BEFORE = 30
"""Nights before a new environment to compare with, if the last shift is not later."""

# Trigger `drift`: small changes that add up.
DRIFT_DEVIATIONS = 4.0
"""A drift in standard errors of the two levels; it is tested every night."""
LEVEL_NIGHTS = 10
"""Nights whose median is the level, at an anchor and today."""


@dataclass(frozen=True, kw_only=True)
class SeriesScale:
    """How much of a metric's ratio is noise, and how much matters; by default a step time's."""

    smallest: float = SMALLEST_SHIFT
    """Relative change of the level below which there is no shift and no edge."""
    noise_floor: float = LEAST_NOISE
    """Least standard deviation of a night's log ratio, however quiet the history is."""
    smallest_count: float = 0.0
    """For counts: at least one side's level must also change by this much; 0 = any change."""
    exact: bool = False
    """Whether fresh starts may agree to the last digit, as bytes and counts do. Their spread then
    counts as at least `noise_floor`; times that agree so are not independent starts."""

    @property
    def bound(self) -> float:
        """Relative change within which fresh starts are the same: twice the smallest."""
        return max(2 * self.smallest, 2 * self.noise_floor)

    @property
    def least_spread(self) -> float:
        """Least standard deviation of fresh starts' log ratios."""
        return self.noise_floor if self.exact else 0.0

    @property
    def version_move(self) -> float:
        """Least log ratio that makes a new environment a suspicion. Smaller ones show in later
        nights, or need a certificate."""
        return math.log1p(2 * self.smallest)

    @property
    def drift(self) -> float:
        """Log ratio since an anchor that is a suspicion, although no single night shows it."""
        return math.log1p(3 * self.smallest)


STEP_SCALE = SeriesScale()
