"""When a history raises a suspicion: every threshold, with its unit and its reason.

Shares and counts of nights. Moves of `VERSION_MOVE` and `DRIFT` are log ratios.
"""

from __future__ import annotations

import math

FEWEST_NIGHTS = 10
"""Nights that a series needs before it is judged: with fewer, its noise is unknown."""

SMALLEST_SHIFT = 0.01
"""Relative change of the level below which there is no shift and no edge, even if significant:
quiet series show differences that are too small to matter."""
SHIFT_MARGIN = 4.4
"""Added to BIC's 2 log n per shift, in units of the noise's variance. Tuned on simulated
histories (benchmarks/verdicts.md)."""
SAME_SHIFT_NIGHTS = 5
"""Days by which the place of a known shift may change as more nights come in."""
UNSURE_NIGHTS = 2
"""Nights on either side of a shift that may belong to the other level."""

EDGE_DEVIATIONS = 4.0
"""Standard deviations from its level beyond which the last night is a suspicion."""
EDGE_NIGHTS = 10
"""Number of last nights in which a shift that is not yet certain is a suspicion."""
EDGE_MARGIN = 4.0
"""How far below the penalty of a shift its gain may be to make a suspicion."""

VERSION_MOVE = math.log(1.02)
"""Change that makes a new environment a suspicion. Smaller ones show in later nights, or need a
certificate."""
VERSION_NIGHTS = 14
"""Last nights in which a new environment is a suspicion, and nights before it for comparison."""
FEWEST_BEFORE = 3
"""Nights that a series needs before a new environment can be a suspicion."""

DRIFT = math.log(1.03)
"""Change since an anchor that is a suspicion, although no single night shows it."""
LEVEL_NIGHTS = 10
"""Nights whose median is the level, at an anchor and today."""
