"""What one more step of an optimiser leaves, in numpy: what timed steps are compared with.

`before` and `after` are the states around the step. `fresh` is what the same step left of the same
parameters with an optimiser that had seen no step: its moments are the gradient's share alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchcore.program import ByName, State

if TYPE_CHECKING:
    import numpy as np

_CORRECTION = (0.15, 1.05)
"""AdamW's update, over that without the corrections of its moments, with the usual betas: 0.32 in
step 1, 0.152 in step 12, and 1 in the end."""


def advance_sgd(before: State, fresh: State, *, learning_rate: float, momentum: float) -> State:
    """SGD with momentum, as torch defines it; the fresh momentum has the weight decay in it."""
    moved = _decay(before["momentum"], fresh["momentum"], momentum)
    params = {name: before["params"][name] - learning_rate * each for name, each in moved.items()}
    return {"params": params, "momentum": moved}


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Its constants, as torch names them."""

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float


def advance_adamw(before: State, after: State, fresh: State, constants: AdamW) -> State:
    """AdamW. The correction of its moments depends on the number of steps, which is not counted
    while the clock runs: `after` shows it, within its bounds."""
    import numpy as np

    groups, rate = ("first_moment", "second_moment"), constants.learning_rate
    first, second = (
        _decay(before[group], fresh[group], beta)
        for group, beta in zip(groups, constants.betas, strict=True)
    )
    kept = {name: before["params"][name] * (1 - rate * constants.weight_decay) for name in first}
    way = {name: first[name] / (np.sqrt(second[name]) + constants.epsilon) for name in first}
    gone = {name: kept[name] - after["params"][name] for name in first}
    least, most = (bound * rate for bound in _CORRECTION)
    length = min(max(_project(gone, way), least), most)
    params = {name: kept[name] - length * way[name] for name in first}
    return {"params": params, "first_moment": first, "second_moment": second}


def _decay(before: ByName, added: ByName, by: float) -> dict[str, np.ndarray]:
    return {name: by * array + added[name] for name, array in before.items()}


def _project(gone: ByName, way: ByName) -> float:
    """The multiple of `way` that is nearest to `gone`, by least squares."""
    import numpy as np

    along = sum(float(np.vdot(gone[name], way[name])) for name in way)
    whole = sum(float(np.vdot(each, each)) for each in way.values())
    return along / whole if whole else 0.0
