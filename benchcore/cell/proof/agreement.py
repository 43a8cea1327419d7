"""Compares the evidence of a duel's contenders pair by pair."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell.proof.following.drawing import DROPPED
from benchcore.program import read_arrays
from benchcore.workloads.proof_inputs.kinks import widen_near_kinks
from benchcore.workloads.proof_inputs.large_values import widen

if TYPE_CHECKING:
    import numpy as np


KNOWN = "before"
"""The moment whose evidence is of the known start, where ReLUs may be near their kinks."""
LARGE = "large"
"""The moment whose evidence is of a start with large values, where tolerances are wider."""
SMALL = "small"
"""The moment whose evidence is of a start with small variances."""
UNUSUAL = (SMALL, LARGE)
_EXACT, _LARGE_EXACT = "float32", "large_float32"
IN_FLOAT32 = {_EXACT: "after", _LARGE_EXACT: LARGE}
"""The moments whose evidence is of the same program in float32, in a case of bfloat16; and those
with the same starts."""
MOVED, _MOVED_OFF = "moved", 0.25
"""A quantity of the known start, and its tolerance: the share of each parameter's numbers that the
first step moves. Evidence where updates are none; rounding decides about single numbers."""
_DROPPED_OFF = 5e-5
"""The tolerance of `DROPPED`, or that of a single loss if it is larger. In fp32 the losses of our
networks differ by 2e-7; dropping nothing changes them by 8e-3, and dropping in the forward pass
only by 1.3e-4."""
_OF_LATER_STEPS = ("loss_trace", "travel")
"""Quantities that are not compared where variances are small: a step moves a parameter by as much
as it holds, so what was rounding becomes a difference of 1e-3 (AdamW; one and two threads of torch
differ by as much)."""


def takes_float32(case: Any) -> Any | None:
    """The case in float32; None if it has that precision, or several devices."""
    if case.precision == "fp32_ieee" or getattr(case, "devices", 1) > 1:
        return None
    return dataclasses.replace(case, precision="fp32_ieee")


def is_proven_in_float32(case: Any) -> bool:
    """Whether the program in float32 is proven. In TF32 its products are rounded, too."""
    return case.precision.startswith("bf16") and takes_float32(case) is not None


def find_non_finite(path: Path) -> str | None:
    """Name of the first quantity with a NaN or an infinity."""
    for quantity, values in _load(path).items():
        if not is_finite(values):
            return quantity
    return None


def is_finite(values: np.ndarray) -> bool:
    """Whether no number is a NaN or an infinity."""
    import numpy as np

    return bool(np.isfinite(values).all())


def save(path: Path, evidence: Mapping[str, np.ndarray]) -> None:
    """Write the evidence, if there is any: a bare interpreter has none, and no numpy."""
    if evidence:
        import numpy as np

        np.savez(path, **evidence)  # type: ignore[arg-type] # its own stubs are wrong


def digest_file(path: Path) -> str | None:
    """SHA-256 of a file of evidence, which others could write to; None = they removed it."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compare_all(
    evidence: Mapping[str, Mapping[str, Path]],
    tolerances: Mapping[str, float],
    near_kinks: Mapping[str, float] | None = None,
    in_float32: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """One row per pair of contenders and quantity that must agree by the workload's spec: of the
    start and moment at which the two differed most.

    `max_relative` is max|a-b| over max(max|a|, max|b|) and decides; `l2_relative` is the global
    relative L2 distance. A quantity that one side doesn't have does not agree. A row with a wider
    tolerance is of a start `near_kinks` (None = the tolerances are the same there), or of the start
    with large values. A row with a narrower one is of the same program `in_float32`.
    """
    known = near_kinks or tolerances
    first = {name: each for name, each in known.items() if name not in _OF_LATER_STEPS}
    exact = in_float32 or {}
    of_moment = {KNOWN: known, SMALL: first, LARGE: widen(known)}
    of_moment |= {_EXACT: exact, _LARGE_EXACT: widen(widen_near_kinks(exact))}
    wanted = dict(tolerances)
    if any(_name_moment(at) in IN_FLOAT32 for each in evidence.values() for at in each):
        wanted = {**exact, **wanted}
    before = [each[at] for each in evidence.values() for at in each if _name_moment(at) == KNOWN]
    if any(_holds(path, MOVED) for path in before):
        of_moment[KNOWN] = {**known, MOVED: _MOVED_OFF}
        wanted[MOVED] = _MOVED_OFF
    dropped = max(tolerances.get("loss", 0.0), _DROPPED_OFF)
    if any(_holds(path, DROPPED) for each in evidence.values() for path in each.values()):
        wanted[DROPPED] = dropped
    rows = []
    for a, b in combinations(evidence, 2):
        shared = [moment for moment in evidence[a] if moment in evidence[b]]
        found = [
            _compare_pair(
                _load(evidence[a][moment]),
                _load(evidence[b][moment]),
                of_moment.get(_name_moment(moment), tolerances),
                dropped,
            )
            for moment in shared
        ]
        for quantity in wanted if found else ():
            rows_of = [each[quantity] for each in found if quantity in each]
            nothing = _compare(None, None, wanted[quantity])
            worst = max(rows_of, key=_distance, default=nothing)
            rows.append({"a": a, "b": b, "quantity": quantity} | worst)
    return rows


def _holds(path: Path, quantity: str) -> bool:
    """Without reading an array: the evidence of a large network has hundreds of megabytes."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return quantity in archive.files


def _name_moment(key: str) -> str:
    """`before` of `start 0, before`."""
    return key.rpartition(" ")[2]


def _distance(row: Mapping[str, Any]) -> float:
    """In tolerances; infinite where the two can't be compared."""
    found, tolerance = row["max_relative"], row["tolerance"]
    if found is None or not tolerance:
        return math.inf if found != 0.0 else 0.0
    return found / tolerance


def _compare_pair(
    a: Mapping[str, np.ndarray],
    b: Mapping[str, np.ndarray],
    tolerances: Mapping[str, float],
    dropped: float,
) -> dict[str, dict[str, Any]]:
    """Of steps with given bits there is evidence where one side draws; then both need it."""
    if DROPPED in {*a, *b}:
        tolerances = {**tolerances, DROPPED: dropped}
    return {name: _compare(a.get(name), b.get(name), each) for name, each in tolerances.items()}


def _load(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    return {name: array.astype(np.float64) for name, array in read_arrays(path).items()}


def _compare(a: np.ndarray | None, b: np.ndarray | None, tolerance: float) -> dict[str, Any]:
    import numpy as np

    nothing = {"tolerance": tolerance, "max_relative": None, "l2_relative": None, "agrees": False}
    if a is None or b is None or a.shape != b.shape:
        return nothing
    scale = max(np.abs(a).max(), np.abs(b).max())
    if not np.isfinite(scale) or scale == 0.0:  # all zeros prove nothing
        return nothing
    max_relative = float(np.abs(a - b).max() / scale)
    norm = max(np.linalg.norm(a.ravel()), np.linalg.norm(b.ravel()))
    return {
        "tolerance": tolerance,
        "max_relative": max_relative,
        "l2_relative": float(np.linalg.norm((a - b).ravel()) / norm),
        "agrees": max_relative <= tolerance,
    }
