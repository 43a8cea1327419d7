"""Proof inputs far from the kinks of all ReLUs, and what is allowed near them.

Rounding alone puts an input within 1e-7 of zero on either side. One such unit late in a network
moved the gradient of `mnist_cnn train_b32` by 1.6e-2, where 2e-7 is usual. So of a training the
known proof inputs are compared within `NEAR_KINKS`, and others, whose units are all far from
zero, within the workload's own tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchcore.program import ByName

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

AWAY = 5.0
"""Where units far from their kinks lie, in standard deviations."""
_SPREAD = 1 / 16
NEAR_KINKS: Mapping[str, float] = {
    "loss_trace": 1e-2,
    "gradient": 5e-2,
    "update": 5e-2,
    "travel": 2e-1,
    "norms": 5e-2,
    "clipped_sum": 5e-2,
}
"""Three times the differences of fair sides at full size (CPU): see `EQUIVALENCE.md`. A function
of the forward pass alone, such as the first loss, has no kink: its tolerance stays."""


def widen_near_kinks(tolerances: Mapping[str, float]) -> dict[str, float]:
    """The tolerances of proof inputs whose units may be near their kinks."""
    return {name: max(each, NEAR_KINKS.get(name, 0.0)) for name, each in tolerances.items()}


def choose_spread(use_case: str) -> float:
    """The standard deviation of units. In training what AWAY adds to all of them must not let the
    steps lead far off; without steps samples have gradients long enough to be clipped."""
    return _SPREAD if use_case == "train" else 1.0


def leave_in_chain(params: ByName, layers: Sequence[str], spread: float) -> dict[str, np.ndarray]:
    """Biases that put the inputs of all ReLUs of a chain of layers AWAY from zero: half of the
    units are on, half are off.

    What units that are on have in common would add up from layer to layer. So a layer's weights of
    them add up to zero; their squares add up to what keeps deviations at `spread`.
    """
    import numpy as np

    params, is_on = dict(params), None
    for layer in layers:
        weight, bias = f"{layer}.weight", f"{layer}.bias"
        length = spread if layer == layers[0] else 1.0
        params[weight] = length * centre(params[weight], is_on)
        if layer != layers[-1]:
            params[bias] = _halve(params[bias]) * np.float32(AWAY * spread)
            is_on = params[bias] > 0
    return params


def centre(weight: np.ndarray, is_on: np.ndarray | None) -> np.ndarray:
    """A layer's weights that add up to zero, and their squares to one, over units that are on."""
    import numpy as np

    if is_on is None:
        is_on = np.ones(weight.shape[1], bool)
        by_unit = weight.reshape(*weight.shape[:2], -1)
    else:  # behind a convolution, each of its channels has several features
        by_unit = weight.reshape(len(weight), len(is_on), -1)
        by_unit = by_unit - by_unit[:, is_on].mean(axis=1, keepdims=True)
    length = np.sqrt((by_unit[:, is_on] ** 2).sum(axis=(1, 2), keepdims=True))
    return (by_unit / length).astype(np.float32).reshape(weight.shape)


def leave_in_stage(
    params: ByName, norms: Sequence[str], sums: Sequence[str], away: float, later: float
) -> dict[str, np.ndarray]:
    """The same in a stage of residual blocks, for the biases of its norms.

    They are as far `away`. What the blocks add up, which is the norm of each in `sums`, goes on in
    the same units; behind the first one its biases are `later`.
    """
    import numpy as np

    params, sides = dict(params), {name: _halve(params[f"{name}.bias"]) for name in norms}
    for name in norms:
        side = sides[sums[0] if name in sums else name]
        params[f"{name}.bias"] = side * np.float32(later if name in sums[1:] else away)
    return params


def _halve(values: np.ndarray) -> np.ndarray:
    """1 for the larger half, -1 for the others."""
    import numpy as np

    return np.where(values > np.median(values), 1.0, -1.0).astype(np.float32)
