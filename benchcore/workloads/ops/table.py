"""The table of single operations: a row each. Its two calls are in `in_jax.py`, `in_torch.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchcore.program import Precision
from benchcore.workloads.ops.random_numbers import NORMAL, UNIFORM, Distribution, Shape

ByPrecision = Mapping[Precision, float]
_HALF: ByPrecision = {"fp32_ieee": 1e-5, "bf16": 2e-2}
_FLOAT_ONLY: ByPrecision = {"fp32_ieee": 1e-5}
LAYER_NORM_EPSILON = 1e-5


def _no_floats(size: Shape) -> dict[str, Shape]:
    return {}


def _no_indices(size: Shape) -> dict[str, tuple[Shape, int]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation. A size is a few numbers that the row gives a meaning.

    `tolerances`: the largest allowed max|a-b| / max(|a|, |b|) by precision; the precisions are
    those that both frameworks compute it in.
    """

    sizes: Mapping[str, Shape]
    """`tiny` for tests, `small` (launch-bound), `medium` (fits in a cache), `large` (does not)."""
    floats: Callable[[Shape], Mapping[str, Shape]] = _no_floats
    """Shapes of the arrays of real numbers, standard normal. Rotation moves the first one on."""
    indices: Callable[[Shape], Mapping[str, tuple[Shape, int]]] = _no_indices
    """Shapes of the arrays of whole numbers, and the number that each must stay below."""
    output: Callable[[Shape], Shape]
    reference: Callable[..., np.ndarray] | None = None
    """The result of the arrays by name, in their dtype; None = it draws numbers."""
    draws: Distribution | None = None
    """The numbers that it draws, of shape `size`; each step continues where the last one ended."""
    takes_size: bool = False
    """Whether reference and calls take the keyword `size`, too."""
    flops: Callable[[Shape], int] = field(default=lambda size: 0)
    """FLOPs of matrix products and convolutions; elementwise work does not count (`Spec.flops`)."""
    tolerances: ByPrecision = field(default_factory=lambda: _HALF)


def _matrix(size: Shape) -> dict[str, Shape]:
    return {"x": size}


def _same(size: Shape) -> Shape:
    return size


def _softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _layer_norm(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + LAYER_NORM_EPSILON)
    return (x - x.mean(axis=1, keepdims=True)) / deviation * scale + offset


def _scatter_add(updates: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows added up by their index, into as many rows as there are updates."""
    added = np.zeros_like(updates)
    np.add.at(added, index, updates)
    return added


def _attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Attention over (batch, head, token, feature)."""
    weights = np.exp(query @ key.swapaxes(2, 3) / np.sqrt(query.shape[3]))
    return weights / weights.sum(axis=3, keepdims=True) @ value


def _transposed_convolution(images: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Stride 2 and 2x2 taps, so that no two taps meet: a pixel becomes a square of four."""
    squares = np.einsum("bcij,cokl->boikjl", images, weight)
    batch, outputs, high, _, wide, _ = squares.shape
    return squares.reshape(batch, outputs, 2 * high, 2 * wide)


def _linspace_chain(ends: np.ndarray, size: Shape) -> np.ndarray:
    """The chain between the first two ends."""
    return np.square(np.sin(np.linspace(ends[0], ends[1], size[1], dtype=ends.dtype))).sum()


def _sizes(tiny: Shape, small: Shape, medium: Shape, large: Shape) -> dict[str, Shape]:
    return {"tiny": tiny, "small": small, "medium": medium, "large": large}


_ROWS = _sizes((6, 24), (16, 128), (512, 512), (4096, 4096))
"""(rows, columns): 8 KiB, 1 MiB and 64 MiB in float32."""

_DRAWN = _sizes((64, 1024), (16, 128), (512, 512), (2048, 2048))
"""The tiny one is larger than the small one: a proof of that takes 2,048 steps. In float32 alone:
the shares and tails that prove it need more digits than bfloat16 has."""

OPERATIONS: dict[str, Operation] = {
    "elementwise_chain": Operation(  # sin, square, sum
        sizes=_ROWS,
        floats=_matrix,
        output=lambda size: size[:1],
        reference=lambda x: np.square(np.sin(x)).sum(axis=1),
    ),
    "softmax": Operation(sizes=_ROWS, floats=_matrix, output=_same, reference=_softmax),
    "layer_norm": Operation(
        sizes=_ROWS,
        floats=lambda size: {"x": size, "scale": size[1:], "offset": size[1:]},
        output=_same,
        reference=_layer_norm,
    ),
    "sum_rows": Operation(
        sizes=_ROWS,
        floats=_matrix,
        output=lambda size: size[:1],
        reference=lambda x: x.sum(axis=1),
    ),
    "sum_columns": Operation(  # of a stack of matrices, so that rotation moves the result on
        sizes=_sizes((4, 6, 5), (4, 16, 32), (4, 256, 256), (4, 2048, 2048)),
        floats=_matrix,
        output=lambda size: (size[0], size[2]),
        reference=lambda x: x.sum(axis=1),
    ),
    "cumulative_sum": Operation(
        sizes=_ROWS,
        floats=_matrix,
        output=_same,
        reference=lambda x: x.cumsum(axis=1),
        tolerances=_FLOAT_ONLY,  # in bfloat16 the order of additions decides the second digit
    ),
    "linspace_chain": Operation(  # of an array that each step creates: linspace, sin, square, sum
        sizes=_sizes((1, 24), (1, 2048), (1, 1 << 18), (1, 1 << 24)),
        floats=lambda size: {"ends": (3,)},  # rotation brings another one to the front
        output=lambda size: size[:1],
        reference=_linspace_chain,
        takes_size=True,
        tolerances=_FLOAT_ONLY,  # bfloat16 has too few numbers between two ends
    ),
    "sort": Operation(
        sizes={**_ROWS, "large": (1024, 4096)},
        floats=_matrix,
        output=_same,
        reference=lambda x: np.sort(x, axis=1),
    ),
    "fft": Operation(  # of real rows; half of the spectrum is the other half's mirror image
        sizes=_ROWS,
        floats=_matrix,
        output=lambda size: (size[0], size[1] // 2 + 1, 2),
        reference=lambda x: split_complex(np.fft.rfft(x)),
        tolerances=_FLOAT_ONLY,  # neither framework transforms bfloat16
    ),
    "gather": Operation(  # rows of a table: (rows, columns, rows taken)
        sizes=_sizes((7, 4, 9), (128, 16, 64), (1024, 128, 1024), (65536, 128, 65536)),
        floats=lambda size: {"table": size[:2]},
        indices=lambda size: {"index": (size[2:], size[0])},
        output=lambda size: (size[2], size[1]),
        reference=lambda table, index: table[index],
    ),
    "scatter_add": Operation(  # rows, added up by index: (rows, columns)
        sizes=_sizes((9, 4), (64, 16), (1024, 128), (65536, 128)),
        floats=lambda size: {"updates": size},
        indices=lambda size: {"index": (size[:1], size[0])},
        output=_same,
        reference=_scatter_add,
    ),
    "attention": Operation(  # (batch, heads, tokens, features)
        sizes=_sizes((2, 2, 6, 4), (1, 4, 32, 32), (2, 8, 128, 64), (8, 12, 512, 64)),
        floats=lambda size: dict.fromkeys(("query", "key", "value"), size),
        output=_same,
        reference=_attention,
        flops=lambda size: 4 * size[0] * size[1] * size[2] ** 2 * size[3],
    ),
    "batched_matmul": Operation(  # (products, side)
        sizes=_sizes((3, 5), (8, 32), (16, 128), (64, 512)),
        floats=lambda size: dict.fromkeys(("left", "right"), (*size, size[1])),
        output=lambda size: (*size, size[1]),
        reference=lambda left, right: left @ right,
        flops=lambda size: 2 * size[0] * size[1] ** 3,
    ),
    "transposed_convolution": Operation(  # (batch, channels, side), to half the channels
        sizes=_sizes((2, 4, 3), (1, 16, 8), (4, 64, 16), (8, 128, 56)),
        floats=lambda size: {
            "images": (*size, size[2]),
            "weight": (size[1], size[1] // 2, 2, 2),
        },
        output=lambda size: (size[0], size[1] // 2, 2 * size[2], 2 * size[2]),
        reference=_transposed_convolution,
        flops=lambda size: 4 * size[0] * size[1] ** 2 * size[2] ** 2,
    ),
    "random_uniform": Operation(
        sizes=_DRAWN, output=_same, draws=UNIFORM, takes_size=True, tolerances=_FLOAT_ONLY
    ),
    "random_normal": Operation(
        sizes=_DRAWN, output=_same, draws=NORMAL, takes_size=True, tolerances=_FLOAT_ONLY
    ),
}
"""By name. `matmul`, `copy` and `convolution` are workloads of their own."""


def split_complex(values: np.ndarray) -> np.ndarray:
    """Complex numbers (...) as real ones (..., 2)."""
    return np.stack([np.real(values), np.imag(values)], axis=-1)
