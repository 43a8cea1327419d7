"""Decides whether two contenders compute the same function, by a float64 reference of each.

First the two float64 references must agree: that proves one function, whatever its rounding.
Then each side's error in the case's precision must be no more than 3 times the other's, and under a
ceiling: a fixed tolerance of gradients would be wrong, as float32 may be percents from float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray]

REFERENCE_BOUND = 2e-8
"""How far the references may be apart: less than one rounding to float32 (3e-8).

torch's own float64 kernel of the hard sigmoid multiplies by 1/6 in float32 as it goes backward,
which puts MobileNetV3's gradient 5e-9 off; others were 1e-11 or less apart. A wrong padding,
epsilon or activation gives 1e-4 and more."""
RATIO = 3.0
"""One side's error may be this many times the other side's."""
_BY_LARGEST = ("logits", "loss", "layer")
"""Compared by max|a-b| / max|b|; all else by its global relative L2 norm, since an array whose true
gradient is zero has any relative error."""
_BACKWARD = ("gradient", "update", "travel", "loss_trace")
"""What rounding may move much further than itself: a ReLU's input falls on either side of zero."""
_FLOORS = {"gradient": 1e-5, "update": 1e-5, "travel": 1e-5}
_FLOOR = 1e-6
_COARSER = {"fp32_ieee": 1.0, "tf32": 100.0, "bf16": 1000.0, "bf16_autocast": 1000.0}
"""Factors of the floors, where a sum's rounding may differ by a digit of that precision."""
_CEILINGS = {
    "fp32_ieee": {"logits": 1e-5, "loss": 1e-4},
    "tf32": {"logits": 5e-3, "loss": 2e-2},
    "bf16": {"logits": 5e-2, "loss": 1e-1},
    "bf16_autocast": {"logits": 5e-2, "loss": 1e-1},
}
"""No precision is so coarse; wider models erred by 1.4e-6, 1.2e-3 and 1.6e-2 (logits, CPU)."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one contender computed in one use case, in the case's precision and in float64."""

    found: Arrays
    exact: Arrays


def gather(seeds: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """The first seed's evidence; the loss is its trace's first one, the trace that of all seeds."""
    import numpy as np

    gathered = dict(seeds[0])
    if "loss_trace" in gathered:
        gathered["loss"] = gathered["loss_trace"][:1]
        gathered["loss_trace"] = np.stack([each["loss_trace"] for each in seeds])
    return gathered


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Bounds of the errors; `tolerances` are what the workload allows two contenders."""

    precision: str
    tolerances: Mapping[str, float]

    def floor(self, quantity: str) -> float:
        """Allowed error of a quantity, on top of the other side's."""
        kind = quantity.partition("/")[0]
        floor = _FLOORS.get(kind, _FLOOR) * _COARSER[self.precision]
        return max(floor, self.tolerances.get(kind, 0.0)) if kind in _BACKWARD else floor


def judge(a: Evidence, b: Evidence, rule: Rule) -> list[dict[str, Any]]:
    """One row per quantity that either side has in the case's precision."""
    quantities = dict.fromkeys([*a.found, *b.found])
    return [judge_quantity(quantity, a, b, rule) for quantity in quantities]


def judge_quantity(
    quantity: str, a: Evidence, b: Evidence, rule: Rule, scale: float | None = None
) -> dict[str, Any]:
    """Errors of both sides against b's reference, their bounds, and whether all are kept.

    An error is None where it can't be had: a side lacks the quantity, its shape is another one, it
    is not finite, or the reference is all zeros, which proves nothing.
    """
    exact, kind = b.exact.get(quantity), quantity.partition("/")[0]
    sides = {"oracle": a.exact, "a": a.found, "b": b.found}
    errors = {of: measure(side.get(quantity), exact, kind, scale) for of, side in sides.items()}
    floor, ceiling = rule.floor(quantity), _CEILINGS[rule.precision].get(kind)
    bounds = {
        "oracle": REFERENCE_BOUND,
        "a": _bound(errors["b"], floor, ceiling),
        "b": _bound(errors["a"], floor, ceiling),
    }
    return {
        "quantity": quantity,
        **{f"{of}_error": error for of, error in errors.items()},
        **{f"{of}_bound": bound for of, bound in bounds.items()},
        "passed": all(_within(errors[of], bounds[of]) for of in sides),
    }


def _bound(other: float | None, floor: float, ceiling: float | None) -> float | None:
    if other is None:
        return None
    bound = RATIO * other + floor
    return bound if ceiling is None else min(bound, ceiling)


def _within(error: float | None, bound: float | None) -> bool:
    return error is not None and bound is not None and error <= bound


def measure(
    found: np.ndarray | None, exact: np.ndarray | None, kind: str, scale: float | None = None
) -> float | None:
    """How far `found` is from `exact`, as a share of `exact` or of `scale`; None = it can't be."""
    import numpy as np

    if found is None or exact is None or found.shape != exact.shape or not exact.size:
        return None
    exact = exact.astype(np.float64)
    away = found.astype(np.float64) - exact
    if kind in _BY_LARGEST:
        distance, own = np.abs(away).max(), np.abs(exact).max()
    else:
        distance, own = np.linalg.norm(away.ravel()), np.linalg.norm(exact.ravel())
    whole = own if scale is None else scale
    if not np.isfinite(distance) or not whole > 0.0:
        return None
    return float(distance / whole)


def trace_drift(quantity: str, a: Evidence, b: Evidence, rule: Rule) -> list[dict[str, Any]]:
    """Where a quantity went wrong: one row per part, layers in forward order, arrays in canonical.

    A layer's error is relative to itself, an array's to the whole quantity's norm. The parts of
    logits and losses are the layers' outputs; those of a gradient or an update are its arrays.
    """
    import numpy as np

    own = any(name.startswith(f"{quantity}/") for name in b.exact)
    prefix = f"{quantity if own else 'layer'}/"
    parts = [name for name in b.exact if name.startswith(prefix) and name in a.exact]
    norms = [np.linalg.norm(b.exact[name].astype(np.float64).ravel()) for name in parts]
    scale = float(np.linalg.norm(norms)) if own else None
    return [
        {**judge_quantity(name, a, b, rule, scale), "quantity": quantity, "part": name}
        for name in parts
    ]
