"""The copy in JAX: one `jax.jit` with its argument donated, so it writes in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.copy.spec import Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the array on the device; a step negates it in place."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    copied = jax.jit(jnp.negative, donate_argnums=0)

    def place() -> jax.Array:
        return jnp.array(arrays.params["values"], copy=True, device=device)

    values = place()

    def step() -> jax.Array:
        nonlocal values
        values = copied(values)
        return values

    return Program(step=step, evidence=lambda: {"copied": np.asarray(copied(place()))})
