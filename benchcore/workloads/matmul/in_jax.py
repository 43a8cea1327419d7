"""The matrix product in JAX: one `jax.jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.rotation import Rotation, roll
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the matrices on the device; a step multiplies the next pair."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    rotation = Rotation(
        [
            tuple(jax.device_put(given[name], device).astype(dtype) for name in ("a", "b"))
            for given in roll(arrays.inputs, case.buffers)
        ]
    )
    first = rotation.buffers[0]
    multiply = jax.jit(lambda a, b: a @ b)
    return Program(
        step=lambda: multiply(*rotation.take()),
        lower=lambda: multiply.lower(*first),
        evidence=lambda: {"product": np.asarray(multiply(*first), dtype=np.float32)},
        held=lambda: {"inputs": first, "rotation": rotation},
    )
