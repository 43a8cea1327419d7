"""Checks that the timed steps changed the state as the proof's steps do, and that further steps
still do."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from benchcore.program import ByName, State

if TYPE_CHECKING:
    import numpy as np

_FEWEST_VALUES = 64
"""A smaller array in bf16 may return to its first value."""
_MOST_VALUES = 4096
"""Values of each array that further steps are judged by: a state of ViT's has 1 GB."""
_OFF = 0.03
"""Share of its own length by which one more step may miss what it should do."""
_TRAVEL_OFF = 0.1
"""Share by which distances from the start may differ."""
_ROUNDINGS: Mapping[str, float] = {"bf16": 2.0**-7}
"""Relative error of a stored number; other precisions hold parameters in float32."""
_ROUNDING = 2.0**-21
_LOSS_OFF: Mapping[str, float] = {"bf16": 1e-2, "bf16_autocast": 1e-2}
_LOSS_OFF_FP32 = 1e-4
"""Relative difference of a loss where only the division of pixels by 255 is another one."""


class StepUnlikeProofError(Exception):
    """The timed steps do not compute what the steps of the proof compute."""


def list_checksums(state: State) -> dict[str, int]:
    """Checksums by `group/name`."""
    return {name: _sum_bytes(array) for name, array in _list_arrays(state).items()}


def _sum_bytes(array: np.ndarray) -> int:
    import numpy as np

    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)


def check_moved(at_start: Mapping[str, int], state: State) -> None:
    """Raises StepUnlikeProofError if an array is not finite, or is the same as at the start.
    Momenta may be zero again, for samples whose gradient has vanished."""
    import numpy as np

    for name, array in _list_arrays(state).items():
        if name not in at_start:
            continue
        if not np.isfinite(array).all():
            raise StepUnlikeProofError(f"{name!r} is not finite after the timed steps")
        is_zero = not name.startswith("params/") and not array.any()
        if array.size >= _FEWEST_VALUES and not is_zero and _sum_bytes(array) == at_start[name]:
            raise StepUnlikeProofError(
                f"{name!r} is the same before and after the timed steps, although the proof's "
                "first step changed it: the timed step does not train it"
            )


def share_moved(before: State, after: State) -> np.ndarray:
    """The share of each parameter's numbers that differ, by name, without small arrays. A final 1
    is the largest value, so shares are compared absolutely. This is evidence where rounding leaves
    an update no digits: it shows frozen parameters, whole or in part."""
    import numpy as np

    params = before["params"]
    names = sorted(name for name, array in params.items() if array.size >= _FEWEST_VALUES)
    return np.array([*(np.mean(params[name] != after["params"][name]) for name in names), 1.0])


def _list_arrays(state: State) -> dict[str, np.ndarray]:
    return {f"{group}/{name}": array for group, of in state.items() for name, array in of.items()}


def sample(state: State) -> dict[str, dict[str, np.ndarray]]:
    """Some values of every array as float64, always at the same positions."""
    return {
        group: {name: _sample(array) for name, array in of.items()} for group, of in state.items()
    }


def _sample(array: np.ndarray) -> np.ndarray:
    return array.ravel()[:: -(-array.size // _MOST_VALUES) or 1].astype("float64")


def check_step(before: State, after: State, wanted: State, precision: str) -> None:
    """Raises StepUnlikeProofError if a step from `before` (zeros where absent) did not lead to
    `wanted`."""
    import numpy as np

    rounding = _ROUNDINGS.get(precision, _ROUNDING)
    for group, of in wanted.items():
        came, should = (_join(each[group], of) for each in (after, wanted))
        was = _join(before[group], of) if group in before else np.zeros_like(should)
        missed, length, whole = (_norm(each) for each in (came - should, should - was, should))
        if not missed <= _OFF * length + rounding * whole:
            raise StepUnlikeProofError(
                f"after one more timed step its {group} are off by {missed:.2g}, where the step "
                f"should change them by {length:.2g}: the timed step does something else than the "
                "proven one"
            )


def check_loss(loss: float, proven: float, precision: str) -> None:
    """Raises StepUnlikeProofError if a step on a batch of a data set has another loss than the
    proven step on the same batch."""
    if not abs(loss - proven) <= _LOSS_OFF.get(precision, _LOSS_OFF_FP32) * abs(proven):
        raise StepUnlikeProofError(
            f"a step on a batch of the data set has the loss {loss:.6g}, where the proven step has "
            f"{proven:.6g}: the training that is timed is not the one that is proven"
        )


def check_end(start: State, came: State, proven: State) -> None:
    """Raises StepUnlikeProofError if the steps did not lead to the proof's final state. A third of
    the distance is allowed, as rounding at kinks adds up."""
    was, here, there = _join_params(start, came, proven)
    if not _norm(here - there) <= _norm(there - was) / 3:
        raise StepUnlikeProofError(
            "a block of steps from the known start did not lead to the state after the proof's "
            "steps: the timed step does something else"
        )


def check_travel(start: State, came: State, single: State, number: int) -> None:
    """Raises StepUnlikeProofError where a block of so many steps led to another state than single
    ones: further away than a third of the way, and not as far from the start either, as where
    rounding decides the way."""
    was, here, there = _join_params(start, came, single)
    missed, block, travel = _norm(here - there), _norm(here - was), _norm(there - was)
    if not (missed <= travel / 3 or abs(block - travel) <= _TRAVEL_OFF * travel):
        raise StepUnlikeProofError(
            f"a block of {number} steps moved its params by {block:.2g}, where as many single "
            f"steps move them by {travel:.2g}: the timed step does its work only sometimes"
        )


def _join_params(start: State, came: State, wanted: State) -> Iterator[np.ndarray]:
    """The parameters of each in one array: those that the start and what came both have."""
    names = start["params"].keys() & came.get("params", {}).keys()
    ordered = {name: start["params"][name] for name in sorted(names)}
    return (_join(each.get("params", {}), ordered) for each in (start, came, wanted))


def check_changes(timed: Sequence[ByName], proven: Sequence[ByName]) -> None:
    """Raises StepUnlikeProofError where the outputs of two timed steps are the same, and those of
    the first two proven ones are not."""
    same = [all((a[name] == b[name]).all() for name in a) for a, b in (timed, proven)]
    if same[0] and not same[1]:
        raise StepUnlikeProofError(
            "one more timed step did not change its outputs: the timed step does something "
            "else than the proven one"
        )


def check_outputs(
    found: ByName, wanted: ByName, tolerances: Mapping[str, float], which: str
) -> None:
    """Raises StepUnlikeProofError where outputs are not those of the proof, within tolerances."""
    import numpy as np

    for name, tolerance in tolerances.items():
        if name not in found:
            continue
        away = np.abs(found[name].astype(np.float64) - wanted[name]).max()
        if not away <= tolerance * np.abs(wanted[name]).max():
            raise StepUnlikeProofError(
                f"{name!r} {which} differs by {away:.2g} from what the proof computes from "
                "the same inputs: the timed step does something else"
            )


def list_same(before: State, after: State) -> list[str]:
    """The groups in which every array is unchanged."""
    import numpy as np

    return [
        group
        for group, of in before.items()
        if group in after and np.array_equal(_join(of, of), _join(after[group], of))
    ]


def _join(arrays: ByName, names: ByName) -> np.ndarray:
    import numpy as np

    parts = [np.ravel(arrays[name]).astype(np.float64) for name in names]
    return np.concatenate(parts) if parts else np.zeros(0)


def _norm(values: np.ndarray) -> float:
    return float((values**2).sum() ** 0.5)
