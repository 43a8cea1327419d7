"""The canary: measures the precision in which a contender really multiplies and convolves.

Operands rounded to a unit roundoff u give a product with a relative error of about 0.6 u of its
norm, for sums of any length: the errors are as random as the terms. So the error reveals u:

    fp64 u = 2^-53, fp32 2^-24 (3e-7 measured: its sums round too), tf32 2^-11, bf16 2^-8, fp8 2^-4

The convolution has a stride of 2, which the Winograd and Fourier algorithms of cuDNN refuse. They
add and subtract operands before they multiply, which a precision's definition allows: with tiles of
4x4 the error is 7 to 10 times as large, and TF32 would read as bfloat16.

The border between two neighbours is the geometric mean of their roundoffs. Float16 has tf32's
mantissa and reads as tf32; it is not a precision of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchcore.program import REFERENCE

if TYPE_CHECKING:
    import numpy as np

_BORDERS = ((2**-40, REFERENCE), (2**-17.5, "fp32_ieee"), (2**-9.5, "tf32"), (2**-6, "bf16"))
_COARSER = "coarser than bf16"
COMPUTED_IN = {"bf16_autocast": "bf16"}
"""Precisions whose products are computed in another one."""
_SEED = 20260101
STRIDE = 2
"""Stride of the canary's convolution, in both directions."""


class CanaryContradictsError(Exception):
    """The contender computes in another precision than its case's label."""


@dataclass(frozen=True, kw_only=True)
class Operands:
    """The canary's inputs, float32: NCHW images, an OIHW kernel, no padding."""

    left: np.ndarray
    right: np.ndarray
    images: np.ndarray
    kernel: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Products:
    """The canary's results as host arrays; the convolved images are NCHW."""

    product: np.ndarray
    convolved: np.ndarray


def make_operands(large: bool = False) -> Operands:
    """Standard normals, always the same; sizes are multiples of those that tensor cores take.

    A GPU gets `large` ones: an autotuner that times kernels of a few microseconds may take one
    without tensor cores, although the products of the case use them.
    """
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(_SEED))
    side, batch, channels, pixels = (1024, 16, 128, 34) if large else (256, 2, 32, 16)
    left, right, images, kernel = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in (
            (side, side),
            (side, side),
            (batch, channels, pixels, pixels),
            (channels, channels, 3, 3),
        )
    )
    return Operands(left=left, right=right, images=images, kernel=kernel)


def run_canary(
    compute: Callable[[Callable[[], Operands]], Products | None],
    precision: str,
    *,
    large: bool = False,
) -> dict[str, Any] | None:
    """Errors of a runtime's matmul and convolution, and the precision that they reveal.

    `compute` is `Runtime.canary`; returns None if no framework computes. `large` as in
    `make_operands`. Raises CanaryContradictsError if the label is wrong.
    """
    make = partial(make_operands, large)
    products = compute(make)
    if products is None:
        return None
    errors = measure(make(), products)
    found: dict[str, Any] = {
        **errors,
        "matmul_seen": classify(errors["matmul_error"]),
        "conv_seen": classify(errors["conv_error"]),
    }
    found["seen"] = classify(max(errors.values()))
    _check(found, precision)
    return found


def measure(operands: Operands, products: Products) -> dict[str, float]:
    """Error of each against float64, relative to the exact result's norm."""
    import numpy as np

    left, right, images, kernel = (
        array.astype(np.float64)
        for array in (operands.left, operands.right, operands.images, operands.kernel)
    )
    high, wide = images.shape[2] - 2, images.shape[3] - 2
    convolved = sum(
        np.einsum(
            "nihw,oi->nohw",
            images[:, :, y : y + high : STRIDE, x : x + wide : STRIDE],
            kernel[:, :, y, x],
            optimize=True,
        )
        for y in range(3)
        for x in range(3)
    )
    return {
        "matmul_error": _distance(products.product, left @ right),
        "conv_error": _distance(products.convolved, np.asarray(convolved)),
    }


def _distance(found: np.ndarray, exact: np.ndarray) -> float:
    import numpy as np

    if found.shape != exact.shape or not np.isfinite(found).all():
        return 1e9  # JSON has no infinity
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


def classify(error: float) -> str:
    """The precision whose rounding gives such an error."""
    return next((name for border, name in _BORDERS if error < border), _COARSER)


def _check(found: Mapping[str, Any], precision: str) -> None:
    """Both must match the label: coarser would be unfairly fast, finer unfairly slow."""
    wanted = COMPUTED_IN.get(precision, precision)
    wrong = [
        f"the {what} errs by {found[f'{key}_error']:.2g}, as {found[f'{key}_seen']} does"
        for what, key in (("matmul", "matmul"), ("convolution", "conv"))
        if found[f"{key}_seen"] != wanted
    ]
    if wrong:
        raise CanaryContradictsError(
            f"the case is labelled {precision!r}, but {'; '.join(wrong)}; "
            "see the precision switches of this framework's runtime"
        )
