"""The matrix product in JAX: one `jax.jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the matrices on the device; a step multiplies the next pair."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    multiply = jax.jit(lambda a, b: a @ b)
    return Program(
        place=lambda inputs: tuple(
            jax.device_put(inputs[name], device).astype(dtype) for name in ("a", "b")
        ),
        step=lambda inputs: multiply(*inputs),
        read=lambda product: {"product": np.asarray(product, dtype=np.float32)},
        lower=lambda inputs: multiply.lower(*inputs),
    )
