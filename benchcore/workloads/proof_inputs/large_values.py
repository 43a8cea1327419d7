"""Two sets of proof inputs with unusual numbers: large activations, and small variances.

The first shows an activation that is limited at 100: the outputs move by a third or more. In a deep
network it costs digits (EfficientNet-B0: a median difference from float64 of 2e-4, and of 1e-6 with
usual numbers). The second shows an error of 1 % in an epsilon, which moves outputs by 3e-4 to 1e-2,
and costs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchcore.program import Arrays

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

LARGE = (30.0, -30.0, 150.0, -150.0)
"""Values of some biases in every layer but the last, and of some inputs."""
_SMALL = 3e-3
"""Factor of some channels before a norm. Their variance is then of the order of an epsilon."""
_SMALL_TOKEN = 1e-2
"""Factor of what the first norm of a transformer sees."""
_FAR = 1000.0
_CHANNELS = slice(1, None, 8)
_WIDER, _WIDEST = 1000.0, 1e-2


def enlarge(case: object, arrays: Arrays) -> Arrays:
    """The arrays with large biases and inputs among the usual ones."""
    return enlarge_but(case, arrays, usual=())


def enlarge_but(case: object, arrays: Arrays, *, usual: Sequence[str]) -> Arrays:
    """The same, except for biases whose names have one of these parts: a transformer's large
    numbers before a norm would hide the others."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(len(arrays.params)))
    params = {name: array.copy() for name, array in arrays.params.items()}
    for name in [name for name in params if name.endswith("bias")][:-1]:
        if not any(each in name for each in usual):
            _put_large(params[name], rng)
    inputs = {name: array.copy() for name, array in arrays.inputs.items()}
    for array in inputs.values():
        if array.dtype == np.float32:
            _put_large(array, rng)
    return Arrays(params=params, inputs=inputs)


def enlarge_far(
    case: Any, arrays: Arrays, *, usual: Sequence[str], far: Mapping[str, float]
) -> Arrays:
    """The same, with means far from zero before a transformer's norms: what is added to all numbers
    of some arrays, by parts of their names. A norm takes it away again, and loses all digits if its
    variance is the difference of two means. Not in training: updates would lose them, too."""
    arrays = enlarge_but(case, arrays, usual=usual)
    if case.use_case == "train":
        return arrays
    params = dict(arrays.params)
    for part, distance in far.items():
        moved = {
            name: each + each.dtype.type(distance) for name, each in params.items() if part in name
        }
        params.update(moved)
    return Arrays(params=params, inputs=arrays.inputs)


def shrink(case: object, arrays: Arrays) -> Arrays:
    """The arrays with small channels where convolutions and batch norms are."""
    params = {name: array.copy() for name, array in arrays.params.items()}
    for name, array in params.items():
        if array.ndim == 4 or name.endswith("running_mean"):
            array[_CHANNELS] *= _SMALL
        if name.endswith("running_var"):
            array[_CHANNELS] *= _SMALL**2
    return Arrays(params=params, inputs=arrays.inputs)


def shrink_rows(case: object, arrays: Arrays) -> Arrays:
    """Rows of an operation, some with a variance near an epsilon."""
    inputs = {name: array.copy() for name, array in arrays.inputs.items()}
    rows = next(iter(inputs.values()))
    if rows.ndim == 2 and rows.dtype.kind == "f":
        rows[_CHANNELS] *= rows.dtype.type(_SMALL)
    return Arrays(params=arrays.params, inputs=inputs)


def move_rows(case: object, arrays: Arrays) -> Arrays:
    """Rows of an operation, every other one with a mean of a thousand deviations: a variance as the
    difference of two means has no digits left there."""
    inputs = {name: array.copy() for name, array in arrays.inputs.items()}
    rows = next(iter(inputs.values()))
    rows[1::2] += rows.dtype.type(_FAR)
    return Arrays(params=arrays.params, inputs=inputs)


def shrink_first(case: object, arrays: Arrays, *, first: Sequence[str]) -> Arrays:
    """A transformer whose first norm sees, by parts of names, numbers so small that its epsilon
    matters."""
    small = {
        name: array * array.dtype.type(_SMALL_TOKEN)
        for name, array in arrays.params.items()
        if any(each in name for each in first)
    }
    return Arrays(params={**arrays.params, **small}, inputs=arrays.inputs)


def _put_large(array: np.ndarray, rng: np.random.Generator) -> None:
    """Put large values at some places, never at more than half of them."""
    few = LARGE[: array.size // 2]
    array.reshape(-1)[rng.integers(0, array.size, len(few))] = few


def widen(tolerances: Mapping[str, float]) -> dict[str, float]:
    """The tolerances of the proof inputs with large values."""
    return {name: max(each, min(_WIDER * each, _WIDEST)) for name, each in tolerances.items()}
