"""What programs in JAX share: copies on the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def to_host(array: jax.Array) -> np.ndarray:
    """A copy in at least float32: numpy's files have no bfloat16. Of several processes each has a
    copy on its own device."""
    return np.array(widen(array if array.is_fully_addressable else array.addressable_data(0)))


def widen(array: jax.Array) -> jax.Array:
    """bfloat16 becomes float32, which is exact; float64 stays."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
