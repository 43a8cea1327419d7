"""The matrix product in JAX: one `jax.jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Both matrices on the device that the settings name; a step multiplies them."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    a, b = (jax.device_put(arrays.inputs[name], device).astype(dtype) for name in ("a", "b"))
    multiply = jax.jit(lambda a, b: a @ b)
    return Program(
        step=lambda: multiply(a, b),
        evidence=lambda: {"product": np.asarray(multiply(a, b), dtype=np.float32)},
    )
