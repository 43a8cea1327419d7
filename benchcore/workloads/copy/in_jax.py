"""The copy in JAX: one `jax.jit` with its argument donated, so it writes in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.copy.spec import Case, digest_copy
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the array on the device; a step negates it in place."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    copied = jax.jit(jnp.negative, donate_argnums=0)

    def start(params: ByName) -> jax.Array:
        return jax.device_put(params["values"], device, may_alias=False)

    values = start(arrays.params)

    def step(inputs: tuple[()]) -> jax.Array:
        nonlocal values
        values = copied(values)
        return values

    def reset(params: ByName) -> None:
        nonlocal values
        values = start(params)

    return Program(step=step, reset=reset, read=lambda copy: digest_copy(np.asarray(copy)))
