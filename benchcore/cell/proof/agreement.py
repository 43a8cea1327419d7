"""Compares the evidence of a duel's contenders pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def find_non_finite(path: Path) -> str | None:
    """Name of the first quantity with a NaN or an infinity."""
    import numpy as np

    for quantity, values in _load(path).items():
        if not np.isfinite(values).all():
            return quantity
    return None


def compare_all(
    evidence: Mapping[str, Path], tolerances: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One row per pair of contenders and quantity that must agree by the workload's spec.

    `max_relative` is max|a-b| over max(max|a|, max|b|) and decides; `l2_relative` is the global
    relative L2 distance. A quantity that one side doesn't have does not agree.
    """
    loaded = {name: _load(path) for name, path in evidence.items()}
    return [
        {"a": a, "b": b, "quantity": quantity, "tolerance": tolerance}
        | _compare(loaded[a].get(quantity), loaded[b].get(quantity), tolerance)
        for a, b in combinations(loaded, 2)
        for quantity, tolerance in tolerances.items()
    ]


def _load(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name].astype(np.float64) for name in archive.files}


def _compare(a: np.ndarray | None, b: np.ndarray | None, tolerance: float) -> dict[str, Any]:
    import numpy as np

    nothing = {"max_relative": None, "l2_relative": None, "agrees": False}
    if a is None or b is None or a.shape != b.shape:
        return nothing
    scale = max(np.abs(a).max(), np.abs(b).max())
    if not np.isfinite(scale) or scale == 0.0:  # all zeros prove nothing
        return nothing
    max_relative = float(np.abs(a - b).max() / scale)
    norm = max(np.linalg.norm(a.ravel()), np.linalg.norm(b.ravel()))
    return {
        "max_relative": max_relative,
        "l2_relative": float(np.linalg.norm((a - b).ravel()) / norm),
        "agrees": max_relative <= tolerance,
    }
