"""Whether two sides learnt the same: top-1 accuracies on the same images, and chance. Pure.

The same batches in the same order, and the same network, do not give the same bits: a rounding
error grows from step to step until it is as good as another seed. So accuracies are held against
chance alone; that both sides learn from the same function is what the evidence of a duel proves.
"""

from __future__ import annotations

import math

LIMIT_Z = 3.29
"""Two-proportion z, pooled: two runs that learnt equally well exceed it once in a thousand."""


def accuracy_z(correct_a: float, correct_b: float, num_images: int) -> float:
    """How many standard errors two accuracies are apart; 0 where nobody or everybody is right.

    Takes both for samples of their own, which can only make it more lenient towards runs on the
    same images: what exceeds it is certainly apart.
    """
    pooled = (correct_a + correct_b) / (2 * num_images)
    error = math.sqrt(2 * pooled * (1 - pooled) / num_images)
    apart = abs(correct_a - correct_b) / num_images
    return apart / error if error else 0.0
