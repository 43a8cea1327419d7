"""Decides whether two contenders compute the same function, using a float64 reference of each.

First the two float64 references must agree: this proves one function, apart from rounding. Then
each side's error in the case's precision must be at most 3 times the other's, and below a ceiling.
A fixed tolerance for gradients would be wrong: float32 may differ from float64 by per cents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray]

REFERENCE_BOUND = 2e-8
"""Largest relative difference of the references: less than one rounding to float32 (3e-8).

torch's own float64 kernel of the hard sigmoid multiplies by 1/6 in float32 in its backward pass,
which changes MobileNetV3's gradient by 5e-9; all others differed by at most 1e-11. A wrong
padding, epsilon or activation gives at least 1e-4."""
RATIO = 3.0
"""One side's error may be this many times the other side's."""
_BY_LARGEST = ("logits", "loss", "layer")
"""Compared by max|a-b| / max|b|. All others use their global relative L2 norm, because an array
whose true gradient is zero may have any relative error."""
_BACKWARD = ("gradient", "update", "travel", "loss_trace", "norms", "clipped_sum")
"""Quantities that rounding moves by much more than itself: a ReLU's input changes its sign."""
_FLOORS = {"gradient": 1e-5, "update": 1e-5, "travel": 1e-5}
_FLOOR = 1e-6
_COARSER = {"fp32_ieee": 1.0, "tf32": 100.0, "bf16": 1000.0, "bf16_autocast": 1000.0}
"""Factors of the floors, because a sum's rounding may differ by a digit of that precision."""
_CEILINGS = {
    "fp32_ieee": {"logits": 1e-5, "loss": 1e-4},
    "tf32": {"logits": 5e-3, "loss": 2e-2},
    "bf16": {"logits": 5e-2, "loss": 1e-1},
    "bf16_autocast": {"logits": 5e-2, "loss": 1e-1},
}
"""No precision is that coarse; wider models erred by 1.4e-6, 1.2e-3 and 1.6e-2 (logits, CPU)."""


@dataclass(frozen=True, kw_only=True)
class SideEvidence:
    """The results of one contender in one use case, in the case's precision and in float64."""

    found: Arrays
    exact: Arrays


def gather(seeds: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """The evidence of the first seed, with `loss` from its trace; `loss_trace` has all seeds."""
    import numpy as np

    gathered = dict(seeds[0])
    if "loss_trace" in gathered:
        gathered["loss"] = gathered["loss_trace"][:1]
        gathered["loss_trace"] = np.stack([each["loss_trace"] for each in seeds])
    return gathered


@dataclass(frozen=True, kw_only=True)
class ProofRule:
    """Bounds of the errors; `tolerances` are the workload's between two contenders."""

    precision: str
    tolerances: Mapping[str, float]

    def floor(self, quantity: str) -> float:
        """Allowed error of a quantity, on top of the other side's."""
        kind = quantity.partition("/")[0]
        floor = _FLOORS.get(kind, _FLOOR) * _COARSER[self.precision]
        return max(floor, self.tolerances.get(kind, 0.0)) if kind in _BACKWARD else floor


def judge(a: SideEvidence, b: SideEvidence, rule: ProofRule) -> list[dict[str, Any]]:
    """One row per quantity that either side has in the case's precision."""
    quantities = dict.fromkeys([*a.found, *b.found])
    return [judge_quantity(quantity, a, b, rule) for quantity in quantities]


def judge_quantity(
    quantity: str, a: SideEvidence, b: SideEvidence, rule: ProofRule, scale: float | None = None
) -> dict[str, Any]:
    """Errors of both sides against b's reference, their bounds, and whether all are met.

    An error is None if it is undefined: a side doesn't have the quantity, or in another shape, it
    is not finite, or the reference is all zeros, which proves nothing.
    """
    exact, kind = b.exact.get(quantity), quantity.partition("/")[0]
    sides = {"reference": a.exact, "a": a.found, "b": b.found}
    errors = {of: measure(side.get(quantity), exact, kind, scale) for of, side in sides.items()}
    floor, ceiling = rule.floor(quantity), _CEILINGS[rule.precision].get(kind)
    bounds = {
        "reference": REFERENCE_BOUND,
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
    """Difference of `found` and `exact`, relative to `exact` or to `scale`; None = undefined."""
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


def trace_drift(
    quantity: str, a: SideEvidence, b: SideEvidence, rule: ProofRule
) -> list[dict[str, Any]]:
    """Locate a difference: one row per part, layers in forward order, arrays in canonical order.

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
