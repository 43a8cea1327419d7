"""A start of the proof with unusual numbers: large activations, and small variances.

They show a limited activation, and an error of 1 % in an epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchcore.program import Arrays

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

LARGE = (30.0, -30.0, 300.0, -300.0)
"""Values of some biases in every layer but the last, and of some inputs."""
_SMALL = 3e-3
"""Factor of some channels before a norm. Their variance is then of the order of an epsilon."""
_SMALL_TOKEN = 1e-2
"""Factor of what the first norm of a transformer sees."""
_CHANNELS = slice(1, None, 8)
_WIDER, _WIDEST = 10.0, 1e-2


def enlarge(case: object, arrays: Arrays) -> Arrays:
    """The arrays with large biases and inputs among the usual ones, and with small channels where
    convolutions and batch norms are."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(len(arrays.params)))
    params = {name: array.copy() for name, array in arrays.params.items()}
    for name in [name for name in params if name.endswith("bias")][:-1]:
        _put_large(params[name], rng)
    for name, array in params.items():
        if array.ndim == 4 or name.endswith("running_mean"):
            array[_CHANNELS] *= _SMALL
        if name.endswith("running_var"):
            array[_CHANNELS] *= _SMALL**2
    inputs = {name: array.copy() for name, array in arrays.inputs.items()}
    for array in inputs.values():
        if array.dtype == np.float32:
            _put_large(array, rng)
    return Arrays(params=params, inputs=inputs)


def enlarge_rows(case: object, arrays: Arrays) -> Arrays:
    """The same for an operation on rows: some rows have a variance of the order of an epsilon."""
    large = enlarge(case, arrays)
    rows = next(iter(large.inputs.values()))
    if rows.ndim == 2 and rows.dtype.kind == "f":
        rows[_CHANNELS] = next(iter(arrays.inputs.values()))[_CHANNELS] * rows.dtype.type(_SMALL)
    return large


def enlarge_before_norms(
    case: object, arrays: Arrays, *, usual: Sequence[str], first: Sequence[str]
) -> Arrays:
    """The same for a transformer, by parts of names. What the `first` norm sees is so small that
    its epsilon matters; what is named in `usual` stays, as large numbers would hide it."""
    large, params = enlarge(case, arrays), arrays.params
    kept = {name: params[name] for name in params if any(each in name for each in usual)}
    small = {
        name: array * array.dtype.type(_SMALL_TOKEN)
        for name, array in params.items()
        if any(each in name for each in first)
    }
    return Arrays(params={**large.params, **kept, **small}, inputs=large.inputs)


def _put_large(array: np.ndarray, rng: np.random.Generator) -> None:
    """At some places; never at more than half of them."""
    few = LARGE[: array.size // 2]
    array.reshape(-1)[rng.integers(0, array.size, len(few))] = few


def widen(tolerances: Mapping[str, float]) -> dict[str, float]:
    """The tolerances of such a start: large numbers among usual ones cost digits."""
    return {name: max(each, min(_WIDER * each, _WIDEST)) for name, each in tolerances.items()}
